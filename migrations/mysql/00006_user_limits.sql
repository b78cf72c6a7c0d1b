-- +goose Up

-- The most units that one buyer may have of a goods; 0 is no limit. Whoever sells
-- under another limit than this one writes nothing. The places have a copy of it:
-- those who sell from a bucket do not look at the row.
ALTER TABLE tb_goods_stock ADD COLUMN per_user BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tb_stock_place ADD COLUMN per_user BIGINT NOT NULL DEFAULT 0;

-- What each buyer has of a goods, while it has a limit. A user is bytes: as text,
-- one that ends in a space would be the same as one that does not. allowed is what
-- the buyer had when a limit came that is lower: it was allowed then.
CREATE TABLE tb_stock_user (
    goods_id BIGINT         NOT NULL,
    user_id  VARBINARY(256) NOT NULL,
    units    BIGINT         NOT NULL,
    allowed  BIGINT         NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id, user_id)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE tb_stock_user;
ALTER TABLE tb_stock_place DROP COLUMN per_user;
ALTER TABLE tb_goods_stock DROP COLUMN per_user;
