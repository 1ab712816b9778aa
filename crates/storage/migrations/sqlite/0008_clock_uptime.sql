-- By which an engine that starts knows how long all of them were away: the uptime of the machine whose
-- engine left the last word, and the word that it belongs to.
ALTER TABLE clock_watch ADD COLUMN boot_id TEXT;
ALTER TABLE clock_watch ADD COLUMN uptime_ms INTEGER;
ALTER TABLE clock_watch ADD COLUMN uptime_at INTEGER;
