-- +goose Up

-- A reservation takes units of an item for a while: it is a purchase whose ledger row is
-- of the kind hold. Its state is here, and each step from it is a row of the ledger, of the
-- kind confirm, release or expire. Times are UTC by the clock of the server: no other clock
-- decides when a reservation has expired. A reservation whose time is over has expired,
-- also where its state is still held and its units are not back yet.
--
-- number is also the order_no of each of its rows in the ledger. ttl is in microseconds.
CREATE TABLE tb_reservation (
    number            VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    goods_id          BIGINT       NOT NULL,
    quantity          BIGINT       NOT NULL,
    user_id           VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    strategy          VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    state             VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    ttl               BIGINT       NOT NULL,
    held_at           DATETIME(6)  NOT NULL,
    expires_at        DATETIME(6)  NOT NULL,
    payment_reference VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
    PRIMARY KEY (number),
    UNIQUE KEY uk_payment_reference (payment_reference),
    KEY k_state (state, expires_at)
) ENGINE = InnoDB;

ALTER TABLE tb_ledger_total
    ADD COLUMN held     BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN returned BIGINT NOT NULL DEFAULT 0;

-- +goose Down

-- What is held goes back into the row, what was confirmed has been sold, and what was
-- returned was restocked.
UPDATE tb_goods_stock SET stock = stock + (
    SELECT COALESCE(SUM(quantity), 0) FROM tb_reservation AS r WHERE r.goods_id = tb_goods_stock.goods_id AND r.state = 'held');
-- What a buyer has of an item with a limit is without what is held, and with what was returned: it
-- was allowed beyond the limit.
UPDATE tb_stock_user AS u
    JOIN (SELECT goods_id, CAST(user_id AS BINARY) AS buyer, SUM(quantity) AS units
        FROM tb_reservation WHERE state = 'held' AND user_id <> '' GROUP BY goods_id, buyer) AS b
        ON b.goods_id = u.goods_id AND b.buyer = u.user_id
    SET u.units = u.units - b.units;
UPDATE tb_stock_user AS u
    JOIN tb_goods_stock AS g ON g.goods_id = u.goods_id
    JOIN (SELECT goods_id, CAST(user_id AS BINARY) AS buyer, SUM(quantity) AS units
        FROM tb_stock_ledger WHERE kind = 'return' AND user_id IS NOT NULL GROUP BY goods_id, buyer) AS b
        ON b.goods_id = u.goods_id AND b.buyer = u.user_id
    SET u.units = u.units + b.units, u.allowed = GREATEST(u.allowed, g.per_user) + b.units;
UPDATE tb_ledger_total SET restocked = restocked + returned;
DELETE FROM tb_stock_ledger WHERE kind IN ('hold', 'release', 'expire');
UPDATE tb_stock_ledger SET kind = 'deduct' WHERE kind = 'confirm';
UPDATE tb_stock_ledger SET kind = 'restock' WHERE kind = 'return';
ALTER TABLE tb_ledger_total DROP COLUMN held, DROP COLUMN returned;
DROP TABLE tb_reservation;
