-- +goose Up

-- What the rows of the ledger up to one id come to, so that an audit need not read
-- all of them. The ledger stays the truth: a full audit reads nothing else.
CREATE TABLE tb_ledger_total (
    goods_id  BIGINT NOT NULL,
    restocked BIGINT NOT NULL DEFAULT 0,
    sold      BIGINT NOT NULL DEFAULT 0,
    orders    BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id)
) ENGINE = InnoDB;

-- One row: upto is the last id that is in the totals. seen is the highest id that
-- there was at seen_at; it is taken in when it is old enough.
CREATE TABLE tb_ledger_settled (
    id      TINYINT     NOT NULL,
    upto    BIGINT      NOT NULL DEFAULT 0,
    seen    BIGINT      NOT NULL DEFAULT 0,
    seen_at DATETIME(6) NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB;
INSERT INTO tb_ledger_settled (id, seen_at) VALUES (1, UTC_TIMESTAMP(6));

-- The rows of a goods after an id, without a look at the rows themselves.
ALTER TABLE tb_stock_ledger
    ADD KEY k_goods (goods_id, id, kind, quantity),
    DROP KEY k_goods_kind;

-- +goose Down
ALTER TABLE tb_stock_ledger
    ADD KEY k_goods_kind (goods_id, kind, quantity),
    DROP KEY k_goods;
DROP TABLE tb_ledger_settled;
DROP TABLE tb_ledger_total;
