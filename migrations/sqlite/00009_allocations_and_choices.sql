-- +goose Up

-- An allocation in Redis that is closed sells nothing: its units are pending orders,
-- and what is on its way back into the row. The next sale through it opens it again.
ALTER TABLE tb_stock_place ADD COLUMN closed BOOLEAN NOT NULL DEFAULT FALSE;

-- The strategy that sells an item where a request names none, and whether it is
-- grouped and fenced. What is empty or null is as the configuration has it, and so is
-- an item that is not here. It is read all the time, and apart from the row that every
-- sale locks.
CREATE TABLE tb_goods_strategy (
    goods_id INTEGER NOT NULL PRIMARY KEY,
    strategy TEXT    NOT NULL DEFAULT '',
    grouped  BOOLEAN NULL,
    fenced   BOOLEAN NULL
);

-- Orders are looked up by the number that redis-stock gave them.
CREATE INDEX k_order_no ON tb_stock_ledger (order_no);

-- +goose Down
DROP INDEX k_order_no;
DROP TABLE tb_goods_strategy;
ALTER TABLE tb_stock_place DROP COLUMN closed;
