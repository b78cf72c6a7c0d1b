-- +goose Up

-- Rows of the ledger that were moved out of it, with their ids. No unique key but that of
-- the id is left: the owner may partition this table by ranges of id, which are ranges of
-- time. No request id is here twice: what is written with one was looked up here before.
CREATE TABLE tb_ledger_archive (
    id         BIGINT          NOT NULL,
    goods_id   BIGINT          NOT NULL,
    kind       VARCHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT          NOT NULL,
    request_id VARCHAR(192)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id    VARCHAR(64)     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    strategy   VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    replica    VARCHAR(128)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    fence      BIGINT UNSIGNED NOT NULL DEFAULT 0,
    remaining  BIGINT          NULL,
    created_at DATETIME(6)     NOT NULL,
    order_no   VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NULL,
    PRIMARY KEY (id),
    KEY k_request (request_id),
    KEY k_goods (goods_id, id, kind, quantity),
    KEY k_order_no (order_no)
) ENGINE = InnoDB;

-- archived is the id up to which rows were moved. aged is an id up to which the totals were
-- an hour ago: no row after it is moved. aging is what aged becomes an hour after aging_at.
ALTER TABLE tb_ledger_settled
    ADD COLUMN archived BIGINT      NOT NULL DEFAULT 0,
    ADD COLUMN aged     BIGINT      NOT NULL DEFAULT 0,
    ADD COLUMN aging    BIGINT      NOT NULL DEFAULT 0,
    ADD COLUMN aging_at DATETIME(6) NOT NULL DEFAULT '2000-01-01 00:00:00';

-- +goose Down

-- What was archived is in the ledger again, also where this was cut off before and is repeated.
INSERT INTO tb_stock_ledger
        (id, goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, remaining, created_at, order_no)
    SELECT id, goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, remaining, created_at, order_no
        FROM tb_ledger_archive AS a WHERE NOT EXISTS (SELECT 1 FROM tb_stock_ledger AS l WHERE l.id = a.id);
DROP TABLE tb_ledger_archive;
ALTER TABLE tb_ledger_settled DROP COLUMN archived, DROP COLUMN aged, DROP COLUMN aging, DROP COLUMN aging_at;
