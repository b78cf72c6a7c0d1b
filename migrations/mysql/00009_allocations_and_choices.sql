-- +goose Up

-- An allocation in Redis that is closed sells nothing: its units are pending orders,
-- and what is on its way back into the row. The next sale through it opens it again.
ALTER TABLE tb_stock_place ADD COLUMN closed BOOLEAN NOT NULL DEFAULT FALSE;

-- The strategy that sells an item where a request names none, and whether it is
-- grouped and fenced. What is empty or null is as the configuration has it, and so is
-- an item that is not here. It is read all the time, and apart from the row that every
-- sale locks.
CREATE TABLE tb_goods_strategy (
    goods_id BIGINT      NOT NULL,
    strategy VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    grouped  BOOLEAN     NULL,
    fenced   BOOLEAN     NULL,
    PRIMARY KEY (goods_id)
) ENGINE = InnoDB;

-- Orders are looked up by the number that redis-stock gave them.
ALTER TABLE tb_stock_ledger ADD KEY k_order_no (order_no);

-- +goose Down
ALTER TABLE tb_stock_ledger DROP KEY k_order_no;
DROP TABLE tb_goods_strategy;
ALTER TABLE tb_stock_place DROP COLUMN closed;
