-- Files in place of values that are too large for a run's history. A file has an owner per run that
-- refers to it: a repetition shares those of the run that it repeats. Rows of runs that are gone are
-- cleared by file-service, and with the last of them the file.
CREATE TABLE run_files (
    run_id     UUID NOT NULL,
    file_id    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (run_id, file_id)
);
CREATE INDEX run_files_by_file ON run_files (file_id);

-- What a heartbeat last said to people. Only attempts that say something are in the index.
ALTER TABLE attempts ADD COLUMN message TEXT;
CREATE INDEX attempts_told ON attempts (run_id)
    WHERE outstanding AND (progress IS NOT NULL OR message IS NOT NULL);
