-- +goose Up

-- The strategies that the owner has switched off, on all replicas. A strategy that
-- is not here is on.
CREATE TABLE tb_strategy_off (
    strategy VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    reason   VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
    PRIMARY KEY (strategy)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE tb_strategy_off;
