-- When an engine last saw the database's clock, and the last step of that clock. One row.
-- Time that passes is seen by some engine; a step is seen by none.
CREATE TABLE clock_watch (
    id           BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    seen_at      BIGINT NOT NULL,
    stepped_from BIGINT,
    stepped_to   BIGINT
);
INSERT INTO clock_watch (id, seen_at) VALUES (1, 0);
