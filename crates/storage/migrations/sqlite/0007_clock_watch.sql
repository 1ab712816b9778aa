-- When an engine last saw the database's clock, and the last step of that clock. One row.
-- Time that passes is seen by some engine; a step is seen by none.
CREATE TABLE clock_watch (
    id           INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    seen_at      INTEGER NOT NULL,
    stepped_from INTEGER,
    stepped_to   INTEGER
) STRICT;
INSERT INTO clock_watch (id, seen_at) VALUES (1, 0);
