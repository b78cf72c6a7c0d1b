-- +goose Up

-- What the rows of the ledger up to one id come to, so that an audit need not read
-- all of them. The ledger stays the truth: a full audit reads nothing else.
CREATE TABLE tb_ledger_total (
    goods_id  INTEGER PRIMARY KEY,
    restocked INTEGER NOT NULL DEFAULT 0,
    sold      INTEGER NOT NULL DEFAULT 0,
    orders    INTEGER NOT NULL DEFAULT 0
);

-- One row: upto is the last id that is in the totals. seen is the highest id that
-- there was at seen_at; it is taken in when it is old enough.
CREATE TABLE tb_ledger_settled (
    id      INTEGER PRIMARY KEY,
    upto    INTEGER NOT NULL DEFAULT 0,
    seen    INTEGER NOT NULL DEFAULT 0,
    seen_at TEXT    NOT NULL
);
INSERT INTO tb_ledger_settled (id, seen_at) VALUES (1, CURRENT_TIMESTAMP);

-- The rows of a goods after an id, without a look at the rows themselves.
CREATE INDEX k_goods ON tb_stock_ledger (goods_id, id, kind, quantity);
DROP INDEX k_goods_kind;

-- +goose Down
CREATE INDEX k_goods_kind ON tb_stock_ledger (goods_id, kind, quantity);
DROP INDEX k_goods;
DROP TABLE tb_ledger_settled;
DROP TABLE tb_ledger_total;
