-- +goose Up

-- A write that was computed from a read must notice every change of the row that
-- was not made by its own strategy. writer is the strategy that alone has written
-- the row since the last such change, or empty; writer_epoch grows with each of
-- them: a restock, a limit, units moved to or from allocations, another strategy.
--
-- claim names the claim of the fence: two holders may have the same token after a
-- failover, and the last one to claim is the one that may write.
ALTER TABLE tb_goods_stock ADD COLUMN writer TEXT NOT NULL DEFAULT '';
ALTER TABLE tb_goods_stock ADD COLUMN writer_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tb_goods_stock ADD COLUMN claim TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE tb_goods_stock DROP COLUMN writer;
ALTER TABLE tb_goods_stock DROP COLUMN writer_epoch;
ALTER TABLE tb_goods_stock DROP COLUMN claim;
