-- +goose Up

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
            SELECT g.stock, g.version,
                    COALESCE((SELECT SUM(a.units) FROM tb_stock_place AS a WHERE a.goods_id = g.goods_id), 0)
                INTO row_stock, row_version, elsewhere
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
DROP PROCEDURE stockd_sell;
