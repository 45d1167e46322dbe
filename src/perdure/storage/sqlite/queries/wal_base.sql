-- Which state of the main file a WAL goes on from: see docs/format.md, "wal_base".

-- name: make_wal_base
CREATE TABLE IF NOT EXISTS wal_base (base BLOB, own BLOB);

-- name: begin_wal_base
INSERT INTO wal_base SELECT zeroblob(16), randomblob(16) WHERE NOT EXISTS (SELECT 1 FROM wal_base);

-- name: move_wal_base
UPDATE wal_base SET base = own, own = randomblob(16);
