-- +goose Up

-- Rows of the ledger that were moved out of it, with their ids. No unique key but that of
-- the id is left. No request id is here twice: what is written with one was looked up here
-- before.
CREATE TABLE tb_ledger_archive (
    id         INTEGER NOT NULL PRIMARY KEY,
    goods_id   INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    quantity   INTEGER NOT NULL,
    request_id TEXT    NOT NULL,
    user_id    TEXT    NULL,
    strategy   TEXT    NOT NULL,
    replica    TEXT    NOT NULL,
    fence      INTEGER NOT NULL DEFAULT 0,
    remaining  INTEGER NULL,
    created_at TEXT    NOT NULL,
    order_no   TEXT    NULL
);
CREATE INDEX k_archive_request ON tb_ledger_archive (request_id);
CREATE INDEX k_archive_goods ON tb_ledger_archive (goods_id, id, kind, quantity);
CREATE INDEX k_archive_order_no ON tb_ledger_archive (order_no);

-- archived is the id up to which rows were moved. aged is an id up to which the totals were
-- an hour ago: no row after it is moved. aging is what aged becomes an hour after aging_at.
ALTER TABLE tb_ledger_settled ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tb_ledger_settled ADD COLUMN aged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tb_ledger_settled ADD COLUMN aging INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tb_ledger_settled ADD COLUMN aging_at TEXT NOT NULL DEFAULT '2000-01-01 00:00:00';

-- +goose Down

-- What was archived is in the ledger again.
INSERT INTO tb_stock_ledger
        (id, goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, remaining, created_at, order_no)
    SELECT id, goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, remaining, created_at, order_no
        FROM tb_ledger_archive;
DROP TABLE tb_ledger_archive;
ALTER TABLE tb_ledger_settled DROP COLUMN archived;
ALTER TABLE tb_ledger_settled DROP COLUMN aged;
ALTER TABLE tb_ledger_settled DROP COLUMN aging;
ALTER TABLE tb_ledger_settled DROP COLUMN aging_at;
