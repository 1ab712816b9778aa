-- Which plugin each of the last revisions of the catalogue was about: a cache reads what changed since
-- the revision that it knows. Where a revision is missing here, it reads everything.
CREATE TABLE catalogue_changes (
    revision  INTEGER NOT NULL PRIMARY KEY,
    plugin_id TEXT NOT NULL
) STRICT;
CREATE INDEX plugin_enablement_by_plugin ON plugin_enablement (plugin_id);
CREATE INDEX plugin_pins_by_plugin ON plugin_pins (plugin_id);
