-- Optional: has the deletion of a lock row, by whomever, wake those who wait
-- for the key and listen (package wakeup/pglisten). Go services that use
-- repository.WithNotify do that by themselves; this is for others that release
-- locks of the same table, such as Spring services.
--
-- Who waits holds a shared advisory lock on the key's bucket. Only then is a
-- notification sent: a transaction that sends one is committed behind all
-- others that do. The lock is taken for a moment to ask, and writes nothing.
CREATE OR REPLACE FUNCTION INT_LOCK_NOTIFY() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE bucket INTEGER := get_byte(sha256(convert_to(CAST(OLD.LOCK_KEY AS text), 'UTF8')), 0) % 64; BEGIN
IF (CASE WHEN pg_try_advisory_lock(1768846444, bucket) THEN NOT pg_advisory_unlock(1768846444, bucket) ELSE TRUE END)
THEN PERFORM pg_notify('intlock', CAST(OLD.LOCK_KEY AS text)); END IF; RETURN NULL; END $$;

DROP TRIGGER IF EXISTS NOTIFY_WAITERS ON INT_LOCK;

CREATE TRIGGER NOTIFY_WAITERS AFTER DELETE ON INT_LOCK FOR EACH ROW EXECUTE FUNCTION INT_LOCK_NOTIFY();
