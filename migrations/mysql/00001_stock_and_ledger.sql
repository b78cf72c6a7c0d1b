-- +goose Up

-- The row that everyone fights over. id, goods_id and stock are what every
-- tutorial has; version is for optimistic writers, fence for fenced ones.
CREATE TABLE tb_goods_stock (
    id       BIGINT          NOT NULL AUTO_INCREMENT,
    goods_id BIGINT          NOT NULL,
    stock    BIGINT          NOT NULL,
    version  BIGINT          NOT NULL DEFAULT 0,
    fence    BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    UNIQUE KEY uk_goods (goods_id)
) ENGINE = InnoDB;

-- One row a restock and one an accepted deduction; it only grows. request_id
-- is compared byte by byte: a key is never taken for one that differs in case.
-- remaining is null where it was not known when the row was written.
CREATE TABLE tb_stock_ledger (
    id         BIGINT          NOT NULL AUTO_INCREMENT,
    goods_id   BIGINT          NOT NULL,
    kind       VARCHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT          NOT NULL,
    request_id VARCHAR(128)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id    VARCHAR(64)     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    strategy   VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    replica    VARCHAR(128)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    fence      BIGINT UNSIGNED NOT NULL DEFAULT 0,
    remaining  BIGINT          NULL,
    created_at DATETIME(6)     NOT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY uk_request (request_id),
    KEY k_goods_kind (goods_id, kind, quantity)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE tb_stock_ledger;
DROP TABLE tb_goods_stock;
