-- +goose Up

-- Times below are UTC by the clock of the server: no other clock decides when a
-- lock has expired. Names and owners are bytes: as text, one that ends in a space
-- would be the same as one that does not.

-- The holders of sql-insert-lock: who inserts the name has it. entry is the
-- acquire that was counted last, by which its effect is found again when its
-- answer was lost.
CREATE TABLE record_lock (
    lock_name  VARBINARY(1020) NOT NULL,
    owner      VARBINARY(1020) NOT NULL,
    host       VARCHAR(255)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    entry      VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    depth      INT             NOT NULL,
    token      BIGINT UNSIGNED NOT NULL,
    expires_at DATETIME(6)     NOT NULL,
    PRIMARY KEY (lock_name)
) ENGINE = InnoDB;

-- One row a name and kind, which stays: names are as few as goods. Rows of kind
-- 'row' are what sql-row-lock locks; those of kind 'version' are what
-- sql-version-lock compares and sets. A row of each, so that a transaction which
-- holds the one never blocks a writer of the other.
CREATE TABLE distribute_lock (
    lock_name  VARBINARY(1020) NOT NULL,
    kind       VARCHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version    BIGINT UNSIGNED NOT NULL DEFAULT 0,
    owner      VARCHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    expires_at DATETIME(6)     NULL,
    PRIMARY KEY (lock_name, kind)
) ENGINE = InnoDB;

-- The last token of a name. It only grows, and is never deleted.
CREATE TABLE lock_token (
    lock_name VARBINARY(1020) NOT NULL,
    token     BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (lock_name)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE lock_token;
DROP TABLE distribute_lock;
DROP TABLE record_lock;
