-- The lock table of Spring Integration 7 with three nullable columns added.
-- Both dates are UTC. DATETIME has no zone, so no session's time_zone shifts
-- them; with fewer than six digits a lease would be rounded, and a renewal in
-- the same second would change nothing and look like a lost lock.
--
-- ascii_bin keeps keys and regions that differ only in case or accents apart.
-- Spring's own script leaves them in the database's default collation, which
-- treats them as one lock; such a table works too, as keys are hashed to
-- lower-case text. Blanks at the end do not count even in ascii_bin, so no
-- region or client id may end with one.
--
-- Add no second unique index: on a conflict there, INSERT ... ON DUPLICATE
-- KEY UPDATE would change the row of another lock.
CREATE TABLE IF NOT EXISTS INT_LOCK (
    LOCK_KEY      CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    REGION        VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    CLIENT_ID     CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin,
    CREATED_DATE  DATETIME(6)  NOT NULL,
    EXPIRED_AFTER DATETIME(6)  NOT NULL,
    ATTEMPT       BIGINT,
    HOLDER        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    LOCK_NAME     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION)
) ENGINE=InnoDB;

-- Where fencing tokens come from. Lock calls draw one only when asked to, after
-- the lock row is theirs and before they commit. A number that was drawn and
-- not used is lost, which does no harm: tokens must rise, not be complete.
--
-- NOCACHE: a cache holds numbers in the memory of a server. Each server of a
-- cluster has its own, and a later grant could get the lower token. Galera's
-- INCREMENT BY 0 deals numbers out by server and does not rise either.
CREATE SEQUENCE IF NOT EXISTS INT_LOCK_TOKEN
    NOCACHE
    NOCYCLE
    ENGINE=InnoDB;

-- The guard: the highest token that has written to a resource. A write with a
-- lower one comes from a lock that was lost. Delete a row only if nobody can
-- still write to its resource with an old token.
--
-- The collation compares bytes: names that differ in case, in accents or in
-- blanks at the end are different. To utf8mb4_bin such blanks do not count.
CREATE TABLE IF NOT EXISTS INT_LOCK_FENCE (
    RESOURCE VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    TOKEN    BIGINT       NOT NULL,
    CONSTRAINT INT_LOCK_FENCE_PK PRIMARY KEY (RESOURCE)
) ENGINE=InnoDB;
