-- +goose Up

-- Units of a goods that are not in its row but kept elsewhere: in a bucket, or in
-- Redis. What is in stock of a goods is its row and all of its places together.
-- epoch grows each time a place is filled anew from here, so that whoever writes on
-- behalf of an older filling is found out.
CREATE TABLE tb_stock_place (
    goods_id INTEGER NOT NULL,
    place    TEXT    NOT NULL,
    units    INTEGER NOT NULL,
    epoch    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id, place)
);

-- The name that a buyer was given for an order before the ledger had it; null where
-- the order is named by its row.
ALTER TABLE tb_stock_ledger ADD COLUMN order_no TEXT NULL;

-- +goose Down

-- What is kept in places goes back into the row.
UPDATE tb_goods_stock SET stock = stock + (
    SELECT COALESCE(SUM(units), 0) FROM tb_stock_place AS p WHERE p.goods_id = tb_goods_stock.goods_id);
ALTER TABLE tb_stock_ledger DROP COLUMN order_no;
DROP TABLE tb_stock_place;
