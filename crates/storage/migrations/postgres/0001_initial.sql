-- Times are epoch milliseconds, documents are raw JSON text (never jsonb: payloads pass through as sent).

-- The catalogue of plugins. Its one-row revision grows with every change and is also the lock under
-- which the catalogue is changed.
CREATE TABLE catalogue_revision (
    id       BIGINT PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL
);
INSERT INTO catalogue_revision (id, revision) VALUES (1, 0);

CREATE TABLE plugins (
    plugin_id   TEXT PRIMARY KEY,
    created_at  BIGINT NOT NULL,
    removed_at  BIGINT,
    quarantined BOOLEAN NOT NULL
);

CREATE TABLE publications (
    publication_id UUID PRIMARY KEY,
    plugin_id      TEXT NOT NULL REFERENCES plugins,
    version        TEXT NOT NULL,
    digest         BYTEA NOT NULL,
    label          TEXT NOT NULL,
    description    TEXT NOT NULL,
    manifest       TEXT NOT NULL,
    items          TEXT NOT NULL,
    assets         TEXT NOT NULL,
    published_at   BIGINT NOT NULL,
    -- Order of commits over all plugins: a plugin's greatest is its newest publication.
    position       BIGINT NOT NULL UNIQUE,
    UNIQUE (plugin_id, version)
);

CREATE TABLE publication_node_types (
    publication_id UUID NOT NULL REFERENCES publications ON DELETE CASCADE,
    ordinal        BIGINT NOT NULL,
    node_type      TEXT NOT NULL,
    PRIMARY KEY (publication_id, node_type)
);

-- node_type '' is the plugin's own listener; others only where they differ from it.
CREATE TABLE plugin_endpoints (
    plugin_id TEXT NOT NULL REFERENCES plugins,
    node_type TEXT NOT NULL,
    host      TEXT NOT NULL,
    port      BIGINT NOT NULL,
    PRIMARY KEY (plugin_id, node_type)
);

CREATE TABLE plugin_health (
    plugin_id  TEXT PRIMARY KEY REFERENCES plugins,
    state      TEXT NOT NULL CHECK (state IN ('unknown', 'online', 'offline')),
    since      BIGINT,
    checked_at BIGINT,
    last_error TEXT,
    failures   BIGINT NOT NULL,
    successes  BIGINT NOT NULL
);

-- user_id '' is the whole workspace. No reference to plugins: a plugin may be enabled ahead of its
-- first publication.
CREATE TABLE plugin_enablement (
    workspace_id TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    plugin_id    TEXT NOT NULL,
    enabled      BOOLEAN NOT NULL,
    changed_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, user_id, plugin_id)
);

CREATE TABLE plugin_pins (
    workspace_id TEXT NOT NULL,
    plugin_id    TEXT NOT NULL REFERENCES plugins,
    version      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, plugin_id)
);

-- Processes: a head row and immutable revisions.
CREATE TABLE processes (
    process_id   UUID PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    revision     BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    deleted_at   BIGINT
);
CREATE INDEX processes_by_workspace ON processes (workspace_id, process_id) WHERE deleted_at IS NULL;

CREATE TABLE process_revisions (
    process_id UUID NOT NULL REFERENCES processes,
    revision   BIGINT NOT NULL,
    document   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (process_id, revision)
);

-- Node types of the newest revision, to tell which processes use a plugin.
CREATE TABLE process_node_types (
    node_type  TEXT NOT NULL,
    process_id UUID NOT NULL REFERENCES processes,
    PRIMARY KEY (node_type, process_id)
);
CREATE INDEX process_node_types_by_process ON process_node_types (process_id);

-- Runs. The tables of the hot path have no foreign keys: the one statement that writes them writes
-- the run's row too, and a check per event would cost more than the event.
CREATE TABLE runs (
    run_id           UUID PRIMARY KEY,
    process_id       UUID NOT NULL,
    process_revision BIGINT NOT NULL,
    workspace_id     TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('running', 'finished', 'failed', 'canceled')),
    sequence         BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    finished_at      BIGINT,
    error            TEXT,
    idempotency_key  TEXT
) WITH (fillfactor = 50); -- room for updates in place: no indexed column of a run ever changes
CREATE UNIQUE INDEX runs_by_key ON runs (process_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_by_workspace ON runs (workspace_id, created_at, run_id);
CREATE INDEX runs_by_process ON runs (process_id, created_at, run_id);

CREATE TABLE run_events (
    run_id   UUID NOT NULL,
    sequence BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (run_id, sequence)
);

-- Attempts stay when they end (outstanding = false), so that a late report still finds its run.
CREATE TABLE attempts (
    execution_id  UUID PRIMARY KEY,
    run_id        UUID NOT NULL,
    node_path     TEXT NOT NULL,
    node_type     TEXT NOT NULL,
    attempt       BIGINT NOT NULL,
    lane          TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('queued', 'dispatched', 'running')),
    outstanding   BOOLEAN NOT NULL,
    deadline      BIGINT,
    opened_at     BIGINT NOT NULL,
    dispatched_at BIGINT,
    acked_at      BIGINT,
    heartbeat_at  BIGINT,
    progress      TEXT
) WITH (fillfactor = 80);
-- The only index beside the key: each costs the hot path a write per attempt.
CREATE INDEX attempts_due ON attempts (deadline) WHERE outstanding;

-- Secrets, sealed by secret-manager before they come here.
CREATE TABLE secrets (
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    kind         TEXT,
    sealed       BYTEA NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, name)
);

-- Index of the files that file-service holds.
CREATE TABLE blobs (
    file_id      TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    media_type   TEXT NOT NULL,
    size         BIGINT NOT NULL,
    digest       BYTEA NOT NULL,
    created_at   BIGINT NOT NULL
);

CREATE TABLE users (
    user_id    TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL
);

-- Only the SHA-256 of a token is kept.
CREATE TABLE tokens (
    hash         BYTEA PRIMARY KEY,
    user_id      TEXT NOT NULL REFERENCES users,
    workspace_id TEXT NOT NULL,
    label        TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    revoked_at   BIGINT
);
