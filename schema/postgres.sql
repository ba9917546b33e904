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
