-- The lock table of Spring Integration 7 with three nullable columns added.
-- Both dates are UTC without a zone, as Spring writes them: no session's
-- TimeZone can shift them.
--
-- Add no index on EXPIRED_AFTER. Every renewal changes that column, and an
-- index on it ends HOT updates: each renewal would then write into both
-- indexes, and the table would grow with the number of renewals.
--
-- fillfactor: half of each page stays free, so that all rows of a page can be
-- renewed at once and the new versions still find room beside the old ones,
-- which HOT needs.
-- autovacuum: the table is small and changes all the time, so the default
-- threshold, a share of the row count, says nothing about it.
CREATE TABLE IF NOT EXISTS INT_LOCK (
    LOCK_KEY      CHAR(36)     NOT NULL,
    REGION        VARCHAR(100) NOT NULL,
    CLIENT_ID     CHAR(36),
    CREATED_DATE  TIMESTAMP    NOT NULL,
    EXPIRED_AFTER TIMESTAMP    NOT NULL,
    ATTEMPT       BIGINT,
    HOLDER        VARCHAR(255),
    LOCK_NAME     VARCHAR(255),
    CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);

-- Where fencing tokens come from. Lock calls draw one only when asked to, after
-- the lock row is theirs and before they commit. A number that was drawn and
-- not used is lost, which does no harm: tokens must rise, not be complete.
--
-- CACHE 1: a larger cache hands each session a block of numbers in advance, and
-- a later grant on another session could get the lower token.
CREATE SEQUENCE IF NOT EXISTS INT_LOCK_TOKEN
    AS BIGINT
    CACHE 1
    NO CYCLE;

-- The guard: the highest token that has written to a resource. A write with a
-- lower one comes from a lock that was lost. Delete a row only if nobody can
-- still write to its resource with an old token.
--
-- COLLATE "C" compares bytes: names that differ in anything are different. In
-- other collations an upgrade of the operating system may change the order, so
-- that the index misses a row and a stale write passes.
-- fillfactor: writes change single rows here and there, so a tenth of each
-- page is room enough for HOT updates. Add no index on TOKEN, it ends them.
CREATE TABLE IF NOT EXISTS INT_LOCK_FENCE (
    RESOURCE VARCHAR(255) COLLATE "C" NOT NULL,
    TOKEN    BIGINT       NOT NULL,
    CONSTRAINT INT_LOCK_FENCE_PK PRIMARY KEY (RESOURCE)
) WITH (
    fillfactor = 90
);
