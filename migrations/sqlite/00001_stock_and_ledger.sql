-- +goose Up

-- The row that everyone fights over. id, goods_id and stock are what every
-- tutorial has; version is for optimistic writers, fence for fenced ones.
CREATE TABLE tb_goods_stock (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    goods_id INTEGER NOT NULL UNIQUE,
    stock    INTEGER NOT NULL,
    version  INTEGER NOT NULL DEFAULT 0,
    fence    INTEGER NOT NULL DEFAULT 0
);

-- One row a restock and one an accepted deduction; it only grows.
-- remaining is null where it was not known when the row was written.
CREATE TABLE tb_stock_ledger (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    goods_id   INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    quantity   INTEGER NOT NULL,
    request_id TEXT    NOT NULL UNIQUE,
    user_id    TEXT    NULL,
    strategy   TEXT    NOT NULL,
    replica    TEXT    NOT NULL,
    fence      INTEGER NOT NULL DEFAULT 0,
    remaining  INTEGER NULL,
    created_at TEXT    NOT NULL
);
CREATE INDEX k_goods_kind ON tb_stock_ledger (goods_id, kind, quantity);

-- +goose Down
DROP TABLE tb_stock_ledger;
DROP TABLE tb_goods_stock;
