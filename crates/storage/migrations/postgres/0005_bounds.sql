-- The most attempts of a plugin that may be dispatched and unfinished at once; NULL: no limit. The
-- plugin's row is the lock under which its places are given.
ALTER TABLE plugins ADD COLUMN max_attempts BIGINT CHECK (max_attempts > 0);

-- Dispatched attempts of plugins with a limit. Rows of attempts that have ended are cleared by whoever
-- asks for a place next, so the end of an attempt costs nothing here.
CREATE TABLE plugin_places (
    plugin_id    TEXT NOT NULL,
    execution_id UUID NOT NULL,
    run_id       UUID NOT NULL,
    PRIMARY KEY (plugin_id, execution_id)
);

-- Running runs of processes with maxConcurrentRuns, cleared in the same way. A book knows all running
-- runs since its revision of the process was first started; its row is the lock.
CREATE TABLE process_books (
    process_id UUID PRIMARY KEY,
    revision   BIGINT NOT NULL
);
CREATE TABLE process_places (
    process_id UUID NOT NULL,
    run_id     UUID NOT NULL,
    PRIMARY KEY (process_id, run_id)
);

-- Runs that retention has deleted, with how many of their events are still to be deleted.
CREATE TABLE pruned_runs (
    run_id UUID PRIMARY KEY,
    events BIGINT NOT NULL
);
