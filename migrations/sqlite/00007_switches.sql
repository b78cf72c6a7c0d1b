-- +goose Up

-- The strategies that the owner has switched off, on all replicas. A strategy that
-- is not here is on.
CREATE TABLE tb_strategy_off (
    strategy TEXT NOT NULL PRIMARY KEY,
    reason   TEXT NOT NULL
);

-- +goose Down
DROP TABLE tb_strategy_off;
