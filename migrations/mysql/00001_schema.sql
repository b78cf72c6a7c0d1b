-- MySQL commits each of these statements by itself. Where the process ends between two of them, all of them run
-- again: none may fail because it has run before.

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
CREATE TABLE IF NOT EXISTS tb_goods_stock (
    id           BIGINT          NOT NULL AUTO_INCREMENT,
    goods_id     BIGINT          NOT NULL,
    stock        BIGINT          NOT NULL,
    version      BIGINT          NOT NULL DEFAULT 0,
    fence        BIGINT UNSIGNED NOT NULL DEFAULT 0,
    fence_by     VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    per_user     BIGINT          NOT NULL DEFAULT 0,
    writer       VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    writer_epoch BIGINT          NOT NULL DEFAULT 0,
    claim        VARCHAR(32)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    starts_at    DATETIME(6)     NULL,
    ends_at      DATETIME(6)     NULL,
    withheld     BIGINT          NULL,
    due_at       DATETIME(6)     NULL,
    PRIMARY KEY (id),
    UNIQUE KEY uk_goods (goods_id),
    KEY k_due (due_at)
) ENGINE = InnoDB;

-- Units of an item outside its row: in a bucket, or in Redis. The stock of an item is its row and all of
-- its allocations together. epoch grows each time an allocation is opened, closed or loaded anew, so that a writer
-- on behalf of an older one is detected; added is how many units were moved into it since. per_user is a copy of the item's: a sale from a bucket does not read
-- the row. A closed allocation sells nothing: its units are pending orders, and what is on its way back
-- into the row. The next sale through it opens it again.
CREATE TABLE IF NOT EXISTS tb_stock_place (
    goods_id BIGINT      NOT NULL,
    place    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    units    BIGINT      NOT NULL,
    epoch    BIGINT      NOT NULL DEFAULT 0,
    per_user BIGINT      NOT NULL DEFAULT 0,
    closed   BOOLEAN     NOT NULL DEFAULT FALSE,
    added    BIGINT      NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id, place)
) ENGINE = InnoDB;

-- What each buyer has of an item, while it has a limit. A user is bytes: as text, one that ends in a space
-- would be the same as one that does not. allowed is what the buyer had when a lower limit was set. kept is how many
-- units were written as pending orders of redis-stock, and returned how many were given back: neither ever falls.
CREATE TABLE IF NOT EXISTS tb_stock_user (
    goods_id BIGINT         NOT NULL,
    user_id  VARBINARY(256) NOT NULL,
    units    BIGINT         NOT NULL,
    allowed  BIGINT         NOT NULL DEFAULT 0,
    kept     BIGINT         NOT NULL DEFAULT 0,
    returned BIGINT         NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id, user_id)
) ENGINE = InnoDB;

-- The strategy that sells an item where a request names none, whether it is grouped and fenced, and the most
-- units of one purchase. What is empty or null is as the configuration has it, and so is an item that is not
-- here. It is read all the time, and apart from the row that every sale locks.
CREATE TABLE IF NOT EXISTS tb_goods_strategy (
    goods_id     BIGINT      NOT NULL,
    strategy     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    grouped      BOOLEAN     NULL,
    fenced       BOOLEAN     NULL,
    max_quantity BIGINT      NULL,
    PRIMARY KEY (goods_id)
) ENGINE = InnoDB;

-- The strategies that are switched off, on all replicas. A strategy that is not here is on.
CREATE TABLE IF NOT EXISTS tb_strategy_off (
    strategy VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    reason   VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
    PRIMARY KEY (strategy)
) ENGINE = InnoDB;

-- One row a restock, a correction, a purchase and a step of a reservation; it only grows. request_id is the client's key
-- and, after a space, whose key it is: that of a buyer, or of a restock. It is compared byte by byte: a key
-- is never taken for one that differs in case. remaining is null where it was not known when the row was
-- written. order_no is the number that a buyer was given before the ledger had the order; null where the
-- order is named by its row.
-- reason and counted are those of a correction, whose quantity is negative where it takes units off. Of a limit, a
-- strategy or times that were set, reason is JSON of that.
CREATE TABLE IF NOT EXISTS tb_stock_ledger (
    id         BIGINT          NOT NULL AUTO_INCREMENT,
    goods_id   BIGINT          NOT NULL,
    kind       VARCHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT          NOT NULL,
    request_id VARCHAR(192)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id    VARCHAR(64)     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    strategy   VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    replica    VARCHAR(128)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    fence      BIGINT UNSIGNED NOT NULL DEFAULT 0,
    remaining  BIGINT          NULL,
    created_at DATETIME(6)     NOT NULL,
    order_no   VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NULL,
    reason     VARCHAR(200)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    counted    BIGINT          NULL,
    PRIMARY KEY (id),
    UNIQUE KEY uk_request (request_id),
    KEY k_goods (goods_id, id, kind, quantity),
    KEY k_order_no (order_no)
) ENGINE = InnoDB;

-- Rows of the ledger that were moved out of it, with their ids. No unique key but that of the id is left:
-- the admin may partition this table by ranges of id, which are ranges of time. No request id is here
-- twice: what is written with one was looked up here before.
CREATE TABLE IF NOT EXISTS tb_ledger_archive (
    id         BIGINT          NOT NULL,
    goods_id   BIGINT          NOT NULL,
    kind       VARCHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    quantity   BIGINT          NOT NULL,
    request_id VARCHAR(192)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    user_id    VARCHAR(64)     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    strategy   VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    replica    VARCHAR(128)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    fence      BIGINT UNSIGNED NOT NULL DEFAULT 0,
    remaining  BIGINT          NULL,
    created_at DATETIME(6)     NOT NULL,
    order_no   VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NULL,
    reason     VARCHAR(200)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    counted    BIGINT          NULL,
    PRIMARY KEY (id),
    KEY k_request (request_id),
    KEY k_goods (goods_id, id, kind, quantity),
    KEY k_order_no (order_no)
) ENGINE = InnoDB;

-- The sums of the ledger's rows up to one id, so that an audit need not read all of them. The ledger stays
-- the truth: a full audit reads nothing else.
CREATE TABLE IF NOT EXISTS tb_ledger_total (
    goods_id  BIGINT NOT NULL,
    restocked BIGINT NOT NULL DEFAULT 0,
    corrected BIGINT NOT NULL DEFAULT 0,
    sold      BIGINT NOT NULL DEFAULT 0,
    orders    BIGINT NOT NULL DEFAULT 0,
    held      BIGINT NOT NULL DEFAULT 0,
    returned  BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (goods_id)
) ENGINE = InnoDB;

-- One row: upto is the last id that is in the totals. seen is the highest id that there was at seen_at; it
-- is taken in when it is old enough. archived is the id up to which rows were moved. aged is an id up to
-- which the totals were an hour ago: no row after it is moved. aging is what aged becomes an hour after
-- aging_at.
CREATE TABLE IF NOT EXISTS tb_ledger_settled (
    id       TINYINT     NOT NULL,
    upto     BIGINT      NOT NULL DEFAULT 0,
    seen     BIGINT      NOT NULL DEFAULT 0,
    seen_at  DATETIME(6) NOT NULL,
    archived BIGINT      NOT NULL DEFAULT 0,
    aged     BIGINT      NOT NULL DEFAULT 0,
    aging    BIGINT      NOT NULL DEFAULT 0,
    aging_at DATETIME(6) NOT NULL DEFAULT '2000-01-01 00:00:00',
    PRIMARY KEY (id)
) ENGINE = InnoDB;
INSERT IGNORE INTO tb_ledger_settled (id, seen_at) VALUES (1, UTC_TIMESTAMP(6));

-- A reservation takes units of an item for a while: it is a purchase whose ledger row is of the kind hold.
-- Its state is here, and each step from it is a row of the ledger, of the kind confirm, release or expire.
-- Times are UTC by the clock of the server: no other clock decides when a reservation has expired. A
-- reservation whose time is over has expired, also where its state is still held and its units are not back
-- yet. number is also the order_no of each of its rows in the ledger. ttl is in microseconds.
CREATE TABLE IF NOT EXISTS tb_reservation (
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
    KEY k_state (state, expires_at),
    KEY k_user (user_id, state)
) ENGINE = InnoDB;

-- Reservations that were released or have expired, which were moved out of tb_reservation. None changes any more.
CREATE TABLE IF NOT EXISTS tb_reservation_archive (
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
    PRIMARY KEY (number)
) ENGINE = InnoDB;

-- Times of locks are UTC by the clock of the server: no other clock decides when a lock has expired. Names
-- and owners are bytes: as text, one that ends in a space would be the same as one that does not.

-- The holders of sql-insert-lock: the client that inserts the name has it. entry is the acquire that was
-- counted last, by which its effect is found again when its answer was lost.
CREATE TABLE IF NOT EXISTS record_lock (
    lock_name  VARBINARY(1020) NOT NULL,
    owner      VARBINARY(1020) NOT NULL,
    host       VARCHAR(255)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    entry      VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    depth      INT             NOT NULL,
    token      BIGINT UNSIGNED NOT NULL,
    expires_at DATETIME(6)     NOT NULL,
    PRIMARY KEY (lock_name)
) ENGINE = InnoDB;

-- One row a name and kind, which stays: names are as few as items. Rows of kind 'row' are what sql-row-lock
-- locks; those of kind 'version' are what sql-version-lock compares and sets. A row of each, so that a
-- transaction which holds the one never blocks a writer of the other.
CREATE TABLE IF NOT EXISTS distribute_lock (
    lock_name  VARBINARY(1020) NOT NULL,
    kind       VARCHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version    BIGINT UNSIGNED NOT NULL DEFAULT 0,
    owner      VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    expires_at DATETIME(6)     NULL,
    PRIMARY KEY (lock_name, kind)
) ENGINE = InnoDB;

-- The last token of a name. It only grows, and is never deleted.
CREATE TABLE IF NOT EXISTS lock_token (
    lock_name VARBINARY(1020) NOT NULL,
    token     BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (lock_name)
) ENGINE = InnoDB;

-- Tables of these names, which are those of the tutorials, may have been here before: they fail here.
SELECT g.fence, g.fence_by, g.per_user, g.writer, g.writer_epoch, g.claim, r.entry, d.kind
FROM tb_goods_stock AS g, record_lock AS r, distribute_lock AS d WHERE FALSE;

-- The whole sale of sql-procedure in one call: it decides the batch in its order, appends
-- what fits to the ledger, takes the units off the row, and commits. The row is locked for
-- no network round trip. It has the rights of its caller.
--
-- batch has one array for each purchase: its request id, quantity and buyer, who may be '';
-- in_all is the sum of their quantities.
-- row_first locks the row before the ledger is written, so that the ledger has what is
-- left after each order. Nothing is committed later than so many microseconds (may_last)
-- after the call arrived, and an id of the ledger is committed within them or never: the
-- running totals rely on it.
--
-- It answers with one row. outcome is sold, rejected (nothing fits), unknown (there is no
-- such item), late, or changed (the limit of a buyer, again and again). verdicts has one
-- array for each purchase: sold and the id of its row, limit and what its buyer has, or
-- buyer, allocated or short and 0.

DROP PROCEDURE IF EXISTS stockd_sell;

-- +goose StatementBegin
CREATE PROCEDURE stockd_sell(
    IN item        BIGINT,
    IN sold_by     VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin,
    IN sold_on     VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN accepted_at DATETIME(6),
    IN may_last    BIGINT,
    IN row_first   BOOLEAN,
    IN in_all      BIGINT,
    IN batch       JSON
)
    MODIFIES SQL DATA
    SQL SECURITY INVOKER
BEGIN
    DECLARE begun       DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE tries       INT DEFAULT 20;
    DECLARE purchases   INT DEFAULT JSON_LENGTH(batch);
    DECLARE decided     INT;
    DECLARE row_stock   BIGINT;
    DECLARE row_version BIGINT;
    DECLARE row_limit   BIGINT; -- of one buyer
    DECLARE sale_limit  BIGINT; -- the one that buyers are counted under
    DECLARE elsewhere   BIGINT; -- units in allocations
    DECLARE off_sale    BOOLEAN DEFAULT FALSE;
    DECLARE request     VARCHAR(192) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE wanted      BIGINT;
    DECLARE buyer       VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE has         BIGINT; -- what the buyer has
    DECLARE taken       BIGINT;
    DECLARE remains     BIGINT;
    DECLARE outcome     VARCHAR(16);
    DECLARE rejection   VARCHAR(64);
    DECLARE verdicts    LONGTEXT;

    DECLARE the_batch CURSOR FOR
        SELECT p.place, p.request, p.wanted, NULLIF(p.buyer, '')
        FROM JSON_TABLE(batch, '$[*]' COLUMNS (
            place   FOR ORDINALITY,
            request VARCHAR(192) CHARACTER SET ascii   PATH '$[0]' ERROR ON ERROR,
            wanted  BIGINT                             PATH '$[1]' ERROR ON ERROR,
            buyer   VARCHAR(64)  CHARACTER SET utf8mb4 PATH '$[2]' ERROR ON ERROR
        )) AS p ORDER BY p.place;

    -- A statement that is killed does not come by here: its caller closes the connection.
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;

    selling: WHILE tries > 0 DO
        SET tries = tries - 1, outcome = 'changed', decided = 0, verdicts = NULL, sale_limit = NULL;
        START TRANSACTION;
        SELECT g.stock, g.per_user INTO row_stock, sale_limit FROM tb_goods_stock AS g WHERE g.goods_id = item;
        IF sale_limit IS NULL THEN
            SET outcome = 'unknown';
            LEAVE selling;
        END IF;

        -- Buyers are locked before all else, in the order of their names, as everywhere.
        IF sale_limit > 0 THEN
            INSERT INTO tb_stock_user (goods_id, user_id, units, allowed)
                SELECT DISTINCT item, CAST(p.buyer AS BINARY) AS name, 0, 0
                FROM JSON_TABLE(batch, '$[*]' COLUMNS (
                    buyer VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[2]' ERROR ON ERROR
                )) AS p WHERE p.buyer <> '' ORDER BY name
                ON DUPLICATE KEY UPDATE tb_stock_user.units = tb_stock_user.units;
        END IF;

        IF row_first THEN
            SELECT g.stock, g.per_user INTO row_stock, row_limit FROM tb_goods_stock AS g WHERE g.goods_id = item FOR UPDATE;
            IF row_limit <> sale_limit THEN
                ROLLBACK;
                ITERATE selling;
            END IF;
        END IF;
        IF row_stock < in_all THEN -- of one moment, for what does not fit may be elsewhere
            SELECT g.stock, g.version, g.withheld IS NOT NULL,
                    COALESCE((SELECT SUM(a.units) FROM tb_stock_place AS a WHERE a.goods_id = g.goods_id), 0)
                INTO row_stock, row_version, off_sale, elsewhere
                FROM tb_goods_stock AS g WHERE g.goods_id = item;
        END IF;

        SET remains = row_stock;
        OPEN the_batch;
        WHILE decided < purchases DO
            FETCH the_batch INTO decided, request, wanted, buyer;
            IF sale_limit > 0 AND buyer IS NOT NULL THEN
                SELECT u.units INTO has FROM tb_stock_user AS u
                    WHERE u.goods_id = item AND u.user_id = CAST(buyer AS BINARY);
            END IF;
            SET rejection = CASE
                WHEN off_sale THEN '["off sale", 0]'
                WHEN sale_limit > 0 AND buyer IS NULL THEN '["buyer", 0]'
                WHEN sale_limit > 0 AND has + wanted > sale_limit THEN CONCAT('["limit", ', has, ']')
                WHEN wanted <= remains THEN NULL
                WHEN wanted <= GREATEST(remains, 0) + elsewhere THEN '["allocated", 0]'
                ELSE '["short", 0]' END;
            IF rejection IS NULL THEN
                SET remains = remains - wanted;
                IF sale_limit > 0 THEN
                    UPDATE tb_stock_user AS u SET u.units = u.units + wanted
                        WHERE u.goods_id = item AND u.user_id = CAST(buyer AS BINARY);
                END IF;
                INSERT INTO tb_stock_ledger
                        (goods_id, kind, quantity, request_id, user_id, strategy, replica, remaining, created_at)
                    VALUES (item, 'deduct', wanted, request, buyer, sold_by, sold_on, IF(row_first, remains, NULL), accepted_at);
            END IF;
            SET verdicts = CONCAT_WS(', ', verdicts, COALESCE(rejection, CONCAT('["sold", ', LAST_INSERT_ID(), ']')));
        END WHILE;
        CLOSE the_batch;
        SET taken = row_stock - remains;

        IF taken = 0 THEN
            SELECT g.per_user INTO row_limit FROM tb_goods_stock AS g WHERE g.goods_id = item;
            IF row_limit = sale_limit THEN
                SET outcome = 'rejected';
                LEAVE selling;
            END IF;
            ROLLBACK;
            ITERATE selling;
        END IF;

        -- LAST_INSERT_ID(x) is x afterwards: what is left, if others sold since the read.
        UPDATE tb_goods_stock AS g
            SET g.stock = LAST_INSERT_ID(g.stock - taken), g.version = g.version + 1,
                g.writer_epoch = g.writer_epoch + (g.writer NOT IN ('', sold_by)), g.writer = sold_by
            WHERE g.goods_id = item AND g.stock >= taken AND g.per_user = sale_limit;
        IF ROW_COUNT() = 0 THEN -- others left too little: decide it under the lock of the row
            ROLLBACK;
            SET row_first = TRUE;
            ITERATE selling;
        END IF;
        SET remains = LAST_INSERT_ID();

        IF TIMESTAMPDIFF(MICROSECOND, begun, UTC_TIMESTAMP(6)) >= may_last THEN
            SET outcome = 'late';
            LEAVE selling;
        END IF;
        COMMIT;
        SET outcome = 'sold';
        LEAVE selling;
    END WHILE;

    IF outcome <> 'sold' THEN
        ROLLBACK;
    END IF;
    SELECT outcome, remains, sale_limit, elsewhere, row_version, CONCAT('[', COALESCE(verdicts, ''), ']') AS verdicts;
END
-- +goose StatementEnd

-- +goose Down
DROP PROCEDURE IF EXISTS stockd_sell;
DROP TABLE IF EXISTS lock_token;
DROP TABLE IF EXISTS distribute_lock;
DROP TABLE IF EXISTS record_lock;
DROP TABLE IF EXISTS tb_reservation_archive;
DROP TABLE IF EXISTS tb_reservation;
DROP TABLE IF EXISTS tb_ledger_settled;
DROP TABLE IF EXISTS tb_ledger_total;
DROP TABLE IF EXISTS tb_ledger_archive;
DROP TABLE IF EXISTS tb_stock_ledger;
DROP TABLE IF EXISTS tb_strategy_off;
DROP TABLE IF EXISTS tb_goods_strategy;
DROP TABLE IF EXISTS tb_stock_user;
DROP TABLE IF EXISTS tb_stock_place;
DROP TABLE IF EXISTS tb_goods_stock;
