-- +goose Up

-- A request id is the client's key and, after a space, whose key it is: that of a
-- buyer, or of a restock. A key of one buyer is not the key of another.
ALTER TABLE tb_stock_ledger
    MODIFY request_id VARCHAR(192) CHARACTER SET ascii COLLATE ascii_bin NOT NULL;

-- The most units of one purchase of an item; null is as the configuration has it.
ALTER TABLE tb_goods_strategy ADD COLUMN max_quantity BIGINT NULL;

-- +goose Down
ALTER TABLE tb_goods_strategy DROP COLUMN max_quantity;
