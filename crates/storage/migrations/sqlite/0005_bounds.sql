-- The most attempts of a plugin that may be dispatched and unfinished at once; NULL: no limit.
ALTER TABLE plugins ADD COLUMN max_attempts INTEGER CHECK (max_attempts > 0);

-- Dispatched attempts of plugins with a limit. Rows of attempts that have ended are cleared by whoever
-- asks for a place next, so the end of an attempt costs nothing here.
CREATE TABLE plugin_places (
    plugin_id    TEXT NOT NULL,
    execution_id BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    PRIMARY KEY (plugin_id, execution_id)
) STRICT, WITHOUT ROWID;

-- Running runs of processes with maxConcurrentRuns, cleared in the same way. A book knows all running
-- runs since its revision of the process was first started.
CREATE TABLE process_books (
    process_id BLOB NOT NULL PRIMARY KEY,
    revision   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE process_places (
    process_id BLOB NOT NULL,
    run_id     BLOB NOT NULL,
    PRIMARY KEY (process_id, run_id)
) STRICT, WITHOUT ROWID;

-- Runs that retention has deleted, with how many of their events are still to be deleted.
CREATE TABLE pruned_runs (
    run_id BLOB NOT NULL PRIMARY KEY,
    events INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
