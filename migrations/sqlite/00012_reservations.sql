-- +goose Up

-- A reservation takes units of an item for a while: it is a purchase whose ledger row is
-- of the kind hold. Its state is here, and each step from it is a row of the ledger, of the
-- kind confirm, release or expire. Times are UTC. A reservation whose time is over has
-- expired, also where its state is still held and its units are not back yet.
--
-- number is also the order_no of each of its rows in the ledger. ttl is in microseconds.
CREATE TABLE tb_reservation (
    number            TEXT    NOT NULL PRIMARY KEY,
    goods_id          INTEGER NOT NULL,
    quantity          INTEGER NOT NULL,
    user_id           TEXT    NOT NULL,
    strategy          TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    ttl               INTEGER NOT NULL,
    held_at           TEXT    NOT NULL,
    expires_at        TEXT    NOT NULL,
    payment_reference TEXT    NULL UNIQUE
);
CREATE INDEX k_state ON tb_reservation (state, expires_at);

ALTER TABLE tb_ledger_total ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tb_ledger_total ADD COLUMN returned INTEGER NOT NULL DEFAULT 0;

-- +goose Down

-- What is held goes back into the row, what was confirmed has been sold, and what was
-- returned was restocked.
UPDATE tb_goods_stock SET stock = stock + (
    SELECT COALESCE(SUM(quantity), 0) FROM tb_reservation AS r WHERE r.goods_id = tb_goods_stock.goods_id AND r.state = 'held');
-- What a buyer has of an item with a limit is without what is held, and with what was returned: it
-- was allowed beyond the limit.
UPDATE tb_stock_user SET units = tb_stock_user.units - b.units
    FROM (SELECT goods_id, user_id, SUM(quantity) AS units
        FROM tb_reservation WHERE state = 'held' AND user_id <> '' GROUP BY goods_id, user_id) AS b
    WHERE b.goods_id = tb_stock_user.goods_id AND b.user_id = tb_stock_user.user_id;
UPDATE tb_stock_user SET units = tb_stock_user.units + b.units, allowed = MAX(allowed, g.per_user) + b.units
    FROM tb_goods_stock AS g, (SELECT goods_id, user_id, SUM(quantity) AS units
        FROM tb_stock_ledger WHERE kind = 'return' AND user_id IS NOT NULL GROUP BY goods_id, user_id) AS b
    WHERE g.goods_id = tb_stock_user.goods_id AND b.goods_id = tb_stock_user.goods_id AND b.user_id = tb_stock_user.user_id;
UPDATE tb_ledger_total SET restocked = restocked + returned;
DELETE FROM tb_stock_ledger WHERE kind IN ('hold', 'release', 'expire');
UPDATE tb_stock_ledger SET kind = 'deduct' WHERE kind = 'confirm';
UPDATE tb_stock_ledger SET kind = 'restock' WHERE kind = 'return';
ALTER TABLE tb_ledger_total DROP COLUMN held;
ALTER TABLE tb_ledger_total DROP COLUMN returned;
DROP TABLE tb_reservation;
