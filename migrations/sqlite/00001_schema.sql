-- +goose Up

-- The contended row of an item. version is for optimistic writers. fence is the token of the strategy
-- fence_by: tokens of different locks do not compare. claim names the claim of that fence: two holders
-- may have the same token after a failover, and only the last one to claim it may write.
--
-- per_user is the most units that one buyer may have of the item; 0 is no limit. A sale that was counted
-- under another limit writes nothing.
--
-- A write that was computed from a read must notice every change of the row that its own strategy did not
-- make. writer is the only strategy that has written the row since the last such change, or empty;
-- writer_epoch grows with each of them: a restock, a limit, units moved to or from allocations, another
-- strategy.
--
-- The item is sold from starts_at until ends_at, by the clock of the database; null is any time. Before and after,
-- withheld has the units of the row, and stock has none; it is null while the item is sold. due_at is from when on units
-- are to be withheld; null: they are, and no allocation has any.
CREATE TABLE tb_goods_stock (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    goods_id     INTEGER NOT NULL UNIQUE,
    stock        INTEGER NOT NULL,
    version      INTEGER NOT NULL DEFAULT 0,
    fence        INTEGER NOT NULL DEFAULT 0,
    fence_by     TEXT    NOT NULL DEFAULT '',
    per_user     INTEGER NOT NULL DEFAULT 0,
    writer       TEXT    NOT NULL DEFAULT '',
    writer_epoch INTEGER NOT NULL DEFAULT 0,
    claim        TEXT    NOT NULL DEFAULT '',
    starts_at    TEXT    NULL,
    ends_at      TEXT    NULL,
    withheld     INTEGER NULL,
    due_at       TEXT    NULL
);
CREATE INDEX k_due ON tb_goods_stock (due_at);

-- Units of an item outside its row: in a bucket, or in Redis. The stock of an item is its row and all of
-- its allocations together. epoch grows each time an allocation is opened, closed or loaded anew, so that a writer
-- on behalf of an older one is detected; added is how many units were moved into it since. per_user is a copy of the item's: a sale from a bucket does not read
-- the row. A closed allocation sells nothing: its units are pending orders, and what is on its way back
-- into the row. The next sale through it opens it again.
CREATE TABLE tb_stock_place (
    goods_id INTEGER NOT NULL,
    place    TEXT    NOT NULL,
    units    INTEGER NOT NULL,
    epoch    INTEGER NOT NULL DEFAULT 0,
    per_user INTEGER NOT NULL DEFAULT 0,
    closed   BOOLEAN NOT NULL DEFAULT FALSE,
    added    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id, place)
);

-- What each buyer has of an item, while it has a limit. allowed is what the buyer had when a lower limit was
-- set. kept is how many units were written as pending orders of redis-stock, and returned how many were given
-- back: neither ever falls.
CREATE TABLE tb_stock_user (
    goods_id INTEGER NOT NULL,
    user_id  TEXT    NOT NULL,
    units    INTEGER NOT NULL,
    allowed  INTEGER NOT NULL DEFAULT 0,
    kept     INTEGER NOT NULL DEFAULT 0,
    returned INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id, user_id)
);

-- The strategy that sells an item where a request names none, whether it is grouped and fenced, and the most
-- units of one purchase. What is empty or null is as the configuration has it, and so is an item that is not
-- here. It is read all the time, and apart from the row that every sale locks.
CREATE TABLE tb_goods_strategy (
    goods_id     INTEGER NOT NULL PRIMARY KEY,
    strategy     TEXT    NOT NULL DEFAULT '',
    grouped      BOOLEAN NULL,
    fenced       BOOLEAN NULL,
    max_quantity BIGINT  NULL
);

-- The strategies that are switched off, on all replicas. A strategy that is not here is on.
CREATE TABLE tb_strategy_off (
    strategy TEXT NOT NULL PRIMARY KEY,
    reason   TEXT NOT NULL
);

-- One row a restock, a correction, a purchase and a step of a reservation; it only grows. request_id is the client's key
-- and, after a space, whose key it is: that of a buyer, or of a restock. remaining is null where it was not
-- known when the row was written. order_no is the number that a buyer was given before the ledger had the
-- order; null where the order is named by its row.
-- reason and counted are those of a correction, whose quantity is negative where it takes units off. Of a limit, a
-- strategy or times that were set, reason is JSON of that.
CREATE TABLE tb_stock_ledger (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    goods_id   INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    quantity   INTEGER NOT NULL,
    request_id TEXT    NOT NULL UNIQUE,
    user_id    TEXT    NULL,
    strategy   TEXT    NOT NULL,
    replica    TEXT    NOT NULL,
    fence      INTEGER NOT NULL DEFAULT 0,
    remaining  INTEGER NULL,
    created_at TEXT    NOT NULL,
    order_no   TEXT    NULL,
    reason     TEXT    NULL,
    counted    INTEGER NULL
);
CREATE INDEX k_goods ON tb_stock_ledger (goods_id, id, kind, quantity);
CREATE INDEX k_order_no ON tb_stock_ledger (order_no);

-- Rows of the ledger that were moved out of it, with their ids. No unique key but that of the id is left. No
-- request id is here twice: what is written with one was looked up here before.
CREATE TABLE tb_ledger_archive (
    id         INTEGER NOT NULL PRIMARY KEY,
    goods_id   INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    quantity   INTEGER NOT NULL,
    request_id TEXT    NOT NULL,
    user_id    TEXT    NULL,
    strategy   TEXT    NOT NULL,
    replica    TEXT    NOT NULL,
    fence      INTEGER NOT NULL DEFAULT 0,
    remaining  INTEGER NULL,
    created_at TEXT    NOT NULL,
    order_no   TEXT    NULL,
    reason     TEXT    NULL,
    counted    INTEGER NULL
);
CREATE INDEX k_archive_request ON tb_ledger_archive (request_id);
CREATE INDEX k_archive_goods ON tb_ledger_archive (goods_id, id, kind, quantity);
CREATE INDEX k_archive_order_no ON tb_ledger_archive (order_no);

-- The sums of the ledger's rows up to one id, so that an audit need not read all of them. The ledger stays
-- the truth: a full audit reads nothing else.
CREATE TABLE tb_ledger_total (
    goods_id  INTEGER PRIMARY KEY,
    restocked INTEGER NOT NULL DEFAULT 0,
    corrected INTEGER NOT NULL DEFAULT 0,
    sold      INTEGER NOT NULL DEFAULT 0,
    orders    INTEGER NOT NULL DEFAULT 0,
    held      INTEGER NOT NULL DEFAULT 0,
    returned  INTEGER NOT NULL DEFAULT 0
);

-- One row: upto is the last id that is in the totals. seen is the highest id that there was at seen_at; it
-- is taken in when it is old enough. archived is the id up to which rows were moved. aged is an id up to
-- which the totals were an hour ago: no row after it is moved. aging is what aged becomes an hour after
-- aging_at.
CREATE TABLE tb_ledger_settled (
    id       INTEGER PRIMARY KEY,
    upto     INTEGER NOT NULL DEFAULT 0,
    seen     INTEGER NOT NULL DEFAULT 0,
    seen_at  TEXT    NOT NULL,
    archived INTEGER NOT NULL DEFAULT 0,
    aged     INTEGER NOT NULL DEFAULT 0,
    aging    INTEGER NOT NULL DEFAULT 0,
    aging_at TEXT    NOT NULL DEFAULT '2000-01-01 00:00:00'
);
INSERT INTO tb_ledger_settled (id, seen_at) VALUES (1, CURRENT_TIMESTAMP);

-- A reservation takes units of an item for a while: it is a purchase whose ledger row is of the kind hold.
-- Its state is here, and each step from it is a row of the ledger, of the kind confirm, release or expire.
-- Times are UTC. A reservation whose time is over has expired, also where its state is still held and its
-- units are not back yet. number is also the order_no of each of its rows in the ledger. ttl is in
-- microseconds.
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
CREATE INDEX k_user ON tb_reservation (user_id, state);

-- Reservations that were released or have expired, which were moved out of tb_reservation. None changes any more.
CREATE TABLE tb_reservation_archive (
    number            TEXT    NOT NULL PRIMARY KEY,
    goods_id          INTEGER NOT NULL,
    quantity          INTEGER NOT NULL,
    user_id           TEXT    NOT NULL,
    strategy          TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    ttl               INTEGER NOT NULL,
    held_at           TEXT    NOT NULL,
    expires_at        TEXT    NOT NULL,
    payment_reference TEXT    NULL
);

-- Times of locks are UTC by the clock of the database, to the millisecond, as text that sorts by time.

-- The holders of sql-insert-lock: the client that inserts the name has it. entry is the acquire that was
-- counted last, by which its effect is found again when its answer was lost.
CREATE TABLE record_lock (
    lock_name  TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    entry      TEXT    NOT NULL,
    depth      INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    expires_at TEXT    NOT NULL
);

-- One row a name and kind, which stays: names are as few as items. There are no row locks here, and so no
-- kind but 'version', for sql-version-lock.
CREATE TABLE distribute_lock (
    lock_name  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    version    INTEGER NOT NULL DEFAULT 0,
    owner      TEXT    NOT NULL DEFAULT '',
    expires_at TEXT    NULL,
    PRIMARY KEY (lock_name, kind)
);

-- The last token of a name. It only grows, and is never deleted.
CREATE TABLE lock_token (
    lock_name TEXT    NOT NULL PRIMARY KEY,
    token     INTEGER NOT NULL
);

-- +goose Down
DROP TABLE lock_token;
DROP TABLE distribute_lock;
DROP TABLE record_lock;
DROP TABLE tb_reservation_archive;
DROP TABLE tb_reservation;
DROP TABLE tb_ledger_settled;
DROP TABLE tb_ledger_total;
DROP TABLE tb_ledger_archive;
DROP TABLE tb_stock_ledger;
DROP TABLE tb_strategy_off;
DROP TABLE tb_goods_strategy;
DROP TABLE tb_stock_user;
DROP TABLE tb_stock_place;
DROP TABLE tb_goods_stock;
