-- Beside the tables of `stockd migrate up`, on the primary of each shard of shop. Each finds the shard of a row, and keeps
-- its column unique over all shards.
CREATE TABLE IF NOT EXISTS lookup_request (
    request_id  VARCHAR(192) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    keyspace_id VARBINARY(16) NOT NULL,
    PRIMARY KEY (request_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS lookup_reservation (
    number      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    keyspace_id VARBINARY(16) NOT NULL,
    PRIMARY KEY (number)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS lookup_payment (
    payment_reference VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    keyspace_id       VARBINARY(16) NOT NULL,
    PRIMARY KEY (payment_reference)
) ENGINE = InnoDB;
