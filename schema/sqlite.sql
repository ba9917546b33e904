-- The lock table of Spring Integration 7 with three nullable columns added.
-- Spring has no script for SQLite, so the types are ours. Both dates are Unix
-- milliseconds, taken from the database's own clock: SQLite has no date type,
-- and dates kept as text are compared as text, which a second format in the
-- same column silently breaks.
--
-- WITHOUT ROWID stores the rows in the primary key itself: one tree to write
-- per change, not two.
CREATE TABLE IF NOT EXISTS INT_LOCK (
    LOCK_KEY      TEXT    NOT NULL,
    REGION        TEXT    NOT NULL,
    CLIENT_ID     TEXT,
    CREATED_DATE  INTEGER NOT NULL,
    EXPIRED_AFTER INTEGER NOT NULL,
    ATTEMPT       INTEGER,
    HOLDER        TEXT,
    LOCK_NAME     TEXT,
    CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION)
) WITHOUT ROWID;

-- Where fencing tokens come from: one row, made by the first lock call that
-- asks for a token and raised by each after it, on the condition that the lock
-- is still its caller's. Deleting the row starts tokens over.
CREATE TABLE IF NOT EXISTS INT_LOCK_TOKEN (
    ID    INTEGER NOT NULL CHECK (ID = 1),
    TOKEN INTEGER NOT NULL,
    CONSTRAINT INT_LOCK_TOKEN_PK PRIMARY KEY (ID)
);

-- The guard: the highest token that has written to a resource. A write with a
-- lower one comes from a lock that was lost. Delete a row only if nobody can
-- still write to its resource with an old token.
CREATE TABLE IF NOT EXISTS INT_LOCK_FENCE (
    RESOURCE TEXT    NOT NULL,
    TOKEN    INTEGER NOT NULL,
    CONSTRAINT INT_LOCK_FENCE_PK PRIMARY KEY (RESOURCE)
) WITHOUT ROWID;
