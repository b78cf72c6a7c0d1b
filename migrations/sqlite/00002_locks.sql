-- +goose Up

-- Times below are UTC by the clock of the database, to the millisecond, as text
-- that sorts by time.

-- The holders of sql-insert-lock: who inserts the name has it. entry is the
-- acquire that was counted last, by which its effect is found again when its
-- answer was lost.
CREATE TABLE record_lock (
    lock_name  TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    entry      TEXT    NOT NULL,
    depth      INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    expires_at TEXT    NOT NULL
);

-- One row a name and kind, which stays: names are as few as goods. There are no
-- row locks here, and so no kind but 'version', for sql-version-lock.
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
