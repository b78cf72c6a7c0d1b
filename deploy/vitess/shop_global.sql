-- Beside the tables of `stockd migrate up`, on the primary of shop_global. The tables of a shop that has sold begin above its
-- highest ids.
CREATE TABLE IF NOT EXISTS seq_goods_stock (
    id INT NOT NULL, next_id BIGINT NOT NULL, cache BIGINT NOT NULL, PRIMARY KEY (id)
) ENGINE = InnoDB COMMENT 'vitess_sequence';
CREATE TABLE IF NOT EXISTS seq_stock_ledger (
    id INT NOT NULL, next_id BIGINT NOT NULL, cache BIGINT NOT NULL, PRIMARY KEY (id)
) ENGINE = InnoDB COMMENT 'vitess_sequence';
INSERT IGNORE INTO seq_goods_stock (id, next_id, cache) VALUES (0, 1, 100);
INSERT IGNORE INTO seq_stock_ledger (id, next_id, cache) VALUES (0, 1, 1000);
