-- Attempts that end have no row any more (those that ended before keep theirs): the end of an attempt's id
-- is that of its run.
CREATE INDEX runs_by_tail ON runs (right(run_id::text, 8));
