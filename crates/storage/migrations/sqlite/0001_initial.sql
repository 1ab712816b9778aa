-- The same tables as in ../postgres: ids are 16-byte blobs, booleans are 0 and 1.
-- Times are epoch milliseconds, documents are raw JSON text (payloads pass through as sent).

-- The catalogue of plugins. Its one-row revision grows with every change and is also the lock under
-- which the catalogue is changed.
CREATE TABLE catalogue_revision (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO catalogue_revision (id, revision) VALUES (1, 0);

CREATE TABLE plugins (
    plugin_id   TEXT NOT NULL PRIMARY KEY,
    created_at  INTEGER NOT NULL,
    removed_at  INTEGER,
    quarantined INTEGER NOT NULL
) STRICT;

CREATE TABLE publications (
    publication_id BLOB NOT NULL PRIMARY KEY,
    plugin_id      TEXT NOT NULL REFERENCES plugins,
    version        TEXT NOT NULL,
    digest         BLOB NOT NULL,
    label          TEXT NOT NULL,
    description    TEXT NOT NULL,
    manifest       TEXT NOT NULL,
    items          TEXT NOT NULL,
    assets         TEXT NOT NULL,
    published_at   INTEGER NOT NULL,
    -- Order of commits over all plugins: a plugin's greatest is its newest publication.
    position       INTEGER NOT NULL UNIQUE,
    UNIQUE (plugin_id, version)
) STRICT;

CREATE TABLE publication_node_types (
    publication_id BLOB NOT NULL REFERENCES publications ON DELETE CASCADE,
    ordinal        INTEGER NOT NULL,
    node_type      TEXT NOT NULL,
    PRIMARY KEY (publication_id, node_type)
) STRICT;

-- node_type '' is the plugin's own listener; others only where they differ from it.
CREATE TABLE plugin_endpoints (
    plugin_id TEXT NOT NULL REFERENCES plugins,
    node_type TEXT NOT NULL,
    host      TEXT NOT NULL,
    port      INTEGER NOT NULL,
    PRIMARY KEY (plugin_id, node_type)
) STRICT;

CREATE TABLE plugin_health (
    plugin_id  TEXT NOT NULL PRIMARY KEY REFERENCES plugins,
    state      TEXT NOT NULL CHECK (state IN ('unknown', 'online', 'offline')),
    since      INTEGER,
    checked_at INTEGER,
    last_error TEXT,
    failures   INTEGER NOT NULL,
    successes  INTEGER NOT NULL
) STRICT;

-- user_id '' is the whole workspace. No reference to plugins: a plugin may be enabled ahead of its
-- first publication.
CREATE TABLE plugin_enablement (
    workspace_id TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    plugin_id    TEXT NOT NULL,
    enabled      INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, user_id, plugin_id)
) STRICT;

CREATE TABLE plugin_pins (
    workspace_id TEXT NOT NULL,
    plugin_id    TEXT NOT NULL REFERENCES plugins,
    version      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, plugin_id)
) STRICT;

-- Processes: a head row and immutable revisions.
CREATE TABLE processes (
    process_id   BLOB NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    revision     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    deleted_at   INTEGER
) STRICT;
CREATE INDEX processes_by_workspace ON processes (workspace_id, process_id) WHERE deleted_at IS NULL;

CREATE TABLE process_revisions (
    process_id BLOB NOT NULL REFERENCES processes,
    revision   INTEGER NOT NULL,
    document   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (process_id, revision)
) STRICT;

-- Node types of the newest revision, to tell which processes use a plugin.
CREATE TABLE process_node_types (
    node_type  TEXT NOT NULL,
    process_id BLOB NOT NULL REFERENCES processes,
    PRIMARY KEY (node_type, process_id)
) STRICT;
CREATE INDEX process_node_types_by_process ON process_node_types (process_id);

-- Runs. The tables of the hot path have no foreign keys: the one statement that writes them writes
-- the run's row too, and a check per event would cost more than the event.
CREATE TABLE runs (
    run_id           BLOB NOT NULL PRIMARY KEY,
    process_id       BLOB NOT NULL,
    process_revision INTEGER NOT NULL,
    workspace_id     TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('running', 'finished', 'failed', 'canceled')),
    sequence         INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    error            TEXT,
    idempotency_key  TEXT
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX runs_by_key ON runs (process_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_by_workspace ON runs (workspace_id, created_at, run_id);
CREATE INDEX runs_by_process ON runs (process_id, created_at, run_id);

CREATE TABLE run_events (
    run_id   BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (run_id, sequence)
) STRICT;

-- Attempts stay when they end (outstanding = false), so that a late report still finds its run.
CREATE TABLE attempts (
    execution_id  BLOB NOT NULL PRIMARY KEY,
    run_id        BLOB NOT NULL,
    node_path     TEXT NOT NULL,
    node_type     TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    lane          TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('queued', 'dispatched', 'running')),
    outstanding   INTEGER NOT NULL,
    deadline      INTEGER,
    opened_at     INTEGER NOT NULL,
    dispatched_at INTEGER,
    acked_at      INTEGER,
    heartbeat_at  INTEGER,
    progress      TEXT
) STRICT, WITHOUT ROWID;
-- The only index beside the key: each costs the hot path a write per attempt.
CREATE INDEX attempts_due ON attempts (deadline) WHERE outstanding;

-- Secrets, sealed by secret-manager before they come here.
CREATE TABLE secrets (
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    kind         TEXT,
    sealed       BLOB NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT;

-- Index of the files that file-service holds.
CREATE TABLE blobs (
    file_id      TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    media_type   TEXT NOT NULL,
    size         INTEGER NOT NULL,
    digest       BLOB NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE users (
    user_id    TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT;

-- Only the SHA-256 of a token is kept.
CREATE TABLE tokens (
    hash         BLOB NOT NULL PRIMARY KEY,
    user_id      TEXT NOT NULL REFERENCES users,
    workspace_id TEXT NOT NULL,
    label        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    revoked_at   INTEGER
) STRICT;
