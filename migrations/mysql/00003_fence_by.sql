-- +goose Up

-- Tokens of different locks do not compare. fence_by is the strategy whose token
-- fence is.
ALTER TABLE tb_goods_stock
    ADD COLUMN fence_by VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE tb_goods_stock DROP COLUMN fence_by;
