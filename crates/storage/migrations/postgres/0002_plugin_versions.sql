-- Versions that nothing new uses, and what is known of their signatures.
ALTER TABLE publications ADD COLUMN yanked_at BIGINT;
ALTER TABLE publications ADD COLUMN signature TEXT NOT NULL DEFAULT 'unsigned'
    CHECK (signature IN ('unsigned', 'signed', 'invalid'));
ALTER TABLE publications ADD COLUMN signed_by TEXT;

-- The last changes of each plugin's health; older ones are dropped when one is added.
CREATE TABLE plugin_health_history (
    plugin_id TEXT NOT NULL REFERENCES plugins,
    at        BIGINT NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('unknown', 'online', 'offline')),
    reason    TEXT,
    PRIMARY KEY (plugin_id, at)
);
