-- Layout of Spring 7

-- acquire (lock_key, region, client_id, attempt, ttl, holder, lock_name)
WITH free AS (
  SELECT 1 FROM INT_LOCK
  WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND ((CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint)) OR EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC'))
  FOR UPDATE SKIP LOCKED),
me AS (
  INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT, HOLDER, LOCK_NAME)
  SELECT CAST($1 AS bpchar), CAST($2 AS varchar), CAST($3 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC') + CAST($5 AS bigint) * INTERVAL '1 microsecond', CAST($4 AS bigint), CAST($6 AS varchar), CAST($7 AS varchar)
  WHERE NOT EXISTS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar))
    OR EXISTS (SELECT 1 FROM free)
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, EXPIRED_AFTER = GREATEST(l.EXPIRED_AFTER, (statement_timestamp() AT TIME ZONE 'UTC') + CAST($5 AS bigint) * INTERVAL '1 microsecond'), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC')
  RETURNING 1)
SELECT TRUE, '', '', CAST(0 AS bigint) FROM me
UNION ALL
SELECT FALSE, COALESCE(CAST(CLIENT_ID AS text), ''), COALESCE(HOLDER, ''), CAST(EXTRACT(EPOCH FROM EXPIRED_AFTER - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint)
FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND NOT EXISTS (SELECT 1 FROM me);

-- update (client_id, ttl, attempt, holder, lock_name, lock_key, region)
UPDATE INT_LOCK SET CLIENT_ID = CAST($1 AS bpchar), EXPIRED_AFTER = GREATEST(EXPIRED_AFTER, (statement_timestamp() AT TIME ZONE 'UTC') + CAST($2 AS bigint) * INTERVAL '1 microsecond'), ATTEMPT = CAST($3 AS bigint), HOLDER = CAST($4 AS varchar), LOCK_NAME = CAST($5 AS varchar)
WHERE LOCK_KEY = CAST($6 AS bpchar) AND REGION = CAST($7 AS varchar) AND ((CLIENT_ID = CAST($1 AS bpchar) AND ATTEMPT = CAST($3 AS bigint)) OR EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC'));

-- insert (lock_key, region, client_id, ttl, attempt, holder, lock_name)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT, HOLDER, LOCK_NAME) VALUES (CAST($1 AS bpchar), CAST($2 AS varchar), CAST($3 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC') + CAST($4 AS bigint) * INTERVAL '1 microsecond', CAST($5 AS bigint), CAST($6 AS varchar), CAST($7 AS varchar)) ON CONFLICT (LOCK_KEY, REGION) DO NOTHING;

-- renew (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET EXPIRED_AFTER = GREATEST(EXPIRED_AFTER, (statement_timestamp() AT TIME ZONE 'UTC') + CAST($1 AS bigint) * INTERVAL '1 microsecond')
WHERE LOCK_KEY = CAST($2 AS bpchar) AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST($5 AS bigint)) AND EXPIRED_AFTER >= (statement_timestamp() AT TIME ZONE 'UTC');

-- delete (lock_key, region, client_id, attempt)
DELETE FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND (CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint));

-- isAcquired (lock_key, region, client_id)
SELECT 1 FROM INT_LOCK
WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND CLIENT_ID = CAST($3 AS bpchar) AND EXPIRED_AFTER >= (statement_timestamp() AT TIME ZONE 'UTC');

-- deleteExpired (region, after)
SELECT LOCK_KEY, CASE WHEN REGION <> CAST($1 AS varchar) THEN 0 WHEN EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC') THEN 2 ELSE 1 END
FROM INT_LOCK WHERE LOCK_KEY > CAST($2 AS bpchar) ORDER BY LOCK_KEY LIMIT 1000;

-- list (region)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, CAST(EXTRACT(EPOCH FROM EXPIRED_AFTER - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint) AS remaining, CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint) AS made
FROM INT_LOCK WHERE REGION = CAST($1 AS varchar) ORDER BY LOCK_KEY;

-- get (region, lock_key)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, CAST(EXTRACT(EPOCH FROM EXPIRED_AFTER - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint) AS remaining, CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint) AS made
FROM INT_LOCK WHERE REGION = CAST($1 AS varchar) AND LOCK_KEY = CAST($2 AS bpchar);

-- endAfter (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET EXPIRED_AFTER = (statement_timestamp() AT TIME ZONE 'UTC') + CAST($1 AS bigint) * INTERVAL '1 microsecond', ATTEMPT = -ATTEMPT
WHERE LOCK_KEY = CAST($2 AS bpchar) AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST($5 AS bigint));

-- release (client_id, attempt, holder, lock_key, region, seen_client, seen_attempt)
UPDATE INT_LOCK SET CLIENT_ID = CAST($1 AS bpchar), EXPIRED_AFTER = (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '1000 microseconds'), ATTEMPT = CAST($2 AS bigint), HOLDER = CAST($3 AS varchar)
WHERE LOCK_KEY = CAST($4 AS bpchar) AND REGION = CAST($5 AS varchar) AND CLIENT_ID = $6 AND COALESCE(ATTEMPT, 0) = $7 AND EXPIRED_AFTER >= (statement_timestamp() AT TIME ZONE 'UTC');

-- renew (ttl, lock_key, region)
UPDATE INT_LOCK SET EXPIRED_AFTER = GREATEST(EXPIRED_AFTER, (statement_timestamp() AT TIME ZONE 'UTC') + CAST($1 AS bigint) * INTERVAL '1 microsecond') WHERE LOCK_KEY = CAST($2 AS bpchar) AND REGION = CAST($3 AS varchar) AND EXPIRED_AFTER >= (statement_timestamp() AT TIME ZONE 'UTC');

-- regions ()
SELECT DISTINCT REGION FROM INT_LOCK ORDER BY REGION;

-- assert ()
WITH held AS (
  SELECT COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, CAST(EXTRACT(EPOCH FROM EXPIRED_AFTER - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint) AS remaining
  FROM INT_LOCK WHERE LOCK_KEY = CAST(E'{escaped}' AS bpchar) AND REGION = '{region}' FOR UPDATE)
SELECT client_id, attempt, holder, remaining, FALSE AS unseen FROM held
UNION ALL
SELECT '', 0, '', 0, TRUE
WHERE NOT EXISTS (SELECT 1 FROM held) AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable');

-- acquire (all_keys, all_attempts, all_ttls, all_names, client_id, region, holder)
WITH asked AS MATERIALIZED (
  SELECT r.want_key, r.want_attempt, r.want_ttl, r.want_name, there.client_id, there.holder, there.remaining, there.mine,
    there.lock_key IS NULL OR free.yes IS NOT NULL AS go
  FROM (SELECT CAST(want_key AS bpchar) AS want_key, want_attempt, want_ttl, want_name
  FROM unnest((SELECT CAST(CAST($1 AS text) AS text[])), (SELECT CAST(CAST($2 AS text) AS bigint[])),
    (SELECT CAST(CAST($3 AS text) AS bigint[])), (SELECT CAST(CAST($4 AS text) AS varchar[]))) AS list (want_key, want_attempt, want_ttl, want_name)) AS r
  LEFT JOIN LATERAL (
    SELECT LOCK_KEY, CLIENT_ID, HOLDER, CAST(EXTRACT(EPOCH FROM EXPIRED_AFTER - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint) AS remaining, (CLIENT_ID = CAST($5 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint)) IS TRUE AS mine
    FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($6 AS varchar) LIMIT 1) AS there ON TRUE
  LEFT JOIN LATERAL (
    SELECT TRUE AS yes FROM INT_LOCK
    WHERE there.lock_key IS NOT NULL AND LOCK_KEY = r.want_key AND REGION = CAST($6 AS varchar) AND ((CLIENT_ID = CAST($5 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint)) OR EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC'))
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS free ON TRUE),
me AS (
  INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT, HOLDER, LOCK_NAME)
  SELECT CAST(r.want_key AS bpchar), CAST($6 AS varchar), CAST($5 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC') + CAST(r.want_ttl AS bigint) * INTERVAL '1 microsecond', CAST(r.want_attempt AS bigint), CAST($7 AS varchar), CAST(r.want_name AS varchar) FROM asked AS r WHERE go
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, EXPIRED_AFTER = GREATEST(l.EXPIRED_AFTER, EXCLUDED.EXPIRED_AFTER), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC')
  RETURNING 1)
SELECT 3, '', '', '', COUNT(*) FROM me
UNION ALL
SELECT CASE WHEN mine OR remaining < 0 THEN 2 ELSE 0 END, CAST(want_key AS text), COALESCE(CAST(client_id AS text), ''), COALESCE(holder, ''), remaining
FROM asked WHERE NOT go;

-- delete (all_keys, all_attempts, region, client_id)
WITH asked AS MATERIALIZED (
  SELECT r.want_key, r.want_attempt, due.place, due.mine
  FROM (SELECT CAST(want_key AS bpchar) AS want_key, want_attempt
  FROM unnest((SELECT CAST(CAST($1 AS text) AS text[])), (SELECT CAST(CAST($2 AS text) AS bigint[]))) AS list (want_key, want_attempt)) AS r
  LEFT JOIN LATERAL (
    SELECT ctid AS place, LOCK_KEY AS mine FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint))
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS due ON TRUE),
gone AS (
  DELETE FROM INT_LOCK AS l USING asked WHERE l.ctid = asked.place AND asked.mine = asked.want_key
  RETURNING 1)
SELECT 3, '', COUNT(*) FROM gone
UNION ALL
SELECT CASE WHEN EXISTS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint)) OFFSET 0) THEN 2 ELSE 0 END,
  CAST(r.want_key AS text), 0 FROM asked AS r WHERE mine IS NULL;

-- deleteExpired (all_keys, all_attempts, region)
WITH asked AS MATERIALIZED (
  SELECT r.want_key, due.place, due.mine
  FROM (SELECT CAST(want_key AS bpchar) AS want_key, want_attempt
  FROM unnest((SELECT CAST(CAST($1 AS text) AS text[])), (SELECT CAST(CAST($2 AS text) AS bigint[]))) AS list (want_key, want_attempt)) AS r
  CROSS JOIN LATERAL (
    SELECT ctid AS place, LOCK_KEY AS mine FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($3 AS varchar) AND EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC')
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS due)
DELETE FROM INT_LOCK AS l USING asked WHERE l.ctid = asked.place AND asked.mine = asked.want_key;

-- renew (lock_key_0, region, client_id, attempt_0, ttl)
WITH due AS (
  SELECT LOCK_KEY FROM INT_LOCK WHERE LOCK_KEY IN (CAST($1 AS bpchar)) AND REGION = CAST($2 AS varchar) AND CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT IN (CAST($4 AS bigint)) AND EXPIRED_AFTER >= (statement_timestamp() AT TIME ZONE 'UTC')
  ORDER BY LOCK_KEY FOR UPDATE SKIP LOCKED)
UPDATE INT_LOCK AS l SET EXPIRED_AFTER = GREATEST(l.EXPIRED_AFTER, (statement_timestamp() AT TIME ZONE 'UTC') + CAST($5 AS bigint) * INTERVAL '1 microsecond')
FROM due WHERE l.LOCK_KEY = due.LOCK_KEY AND l.REGION = CAST($2 AS varchar);

-- renew (region, lock_key_0)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, CAST(EXTRACT(EPOCH FROM EXPIRED_AFTER - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint) AS remaining
FROM INT_LOCK WHERE REGION = CAST($1 AS varchar) AND LOCK_KEY IN (CAST($2 AS bpchar));

-- With tokens, where that differs. What draws a token alone follows a grant
-- where acquire cannot, and after custom queries.

-- acquire (lock_key, region, client_id, attempt, ttl, holder, lock_name)
WITH free AS (
  SELECT 1 FROM INT_LOCK
  WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND ((CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint)) OR EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC'))
  FOR UPDATE SKIP LOCKED),
me AS (
  INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT, HOLDER, LOCK_NAME)
  SELECT CAST($1 AS bpchar), CAST($2 AS varchar), CAST($3 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC') + CAST($5 AS bigint) * INTERVAL '1 microsecond', CAST($4 AS bigint), CAST($6 AS varchar), CAST($7 AS varchar)
  WHERE NOT EXISTS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar))
    OR EXISTS (SELECT 1 FROM free)
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, EXPIRED_AFTER = GREATEST(l.EXPIRED_AFTER, (statement_timestamp() AT TIME ZONE 'UTC') + CAST($5 AS bigint) * INTERVAL '1 microsecond'), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.EXPIRED_AFTER < (statement_timestamp() AT TIME ZONE 'UTC')
  RETURNING nextval('INT_LOCK_TOKEN') AS TOKEN)
SELECT TRUE, '', '', TOKEN FROM me
UNION ALL
SELECT FALSE, COALESCE(CAST(CLIENT_ID AS text), ''), COALESCE(HOLDER, ''), CAST(EXTRACT(EPOCH FROM EXPIRED_AFTER - (statement_timestamp() AT TIME ZONE 'UTC')) * 1000000 AS bigint)
FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND NOT EXISTS (SELECT 1 FROM me);

-- draw token (lock_key, region, client_id, attempt)
WITH me AS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND (CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint)) AND EXPIRED_AFTER >= (statement_timestamp() AT TIME ZONE 'UTC') FOR UPDATE)
SELECT nextval('INT_LOCK_TOKEN') FROM me;

-- Layout of Spring 6.5 and older, timeToLive 10 s

-- acquire (lock_key, region, client_id, attempt, ttl, holder, lock_name)
WITH free AS (
  SELECT 1 FROM INT_LOCK
  WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND ((CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint)) OR CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds'))
  FOR UPDATE SKIP LOCKED),
me AS (
  INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, ATTEMPT, HOLDER, LOCK_NAME)
  SELECT CAST($1 AS bpchar), CAST($2 AS varchar), CAST($3 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($5 AS bigint) * INTERVAL '1 microsecond', CAST($4 AS bigint), CAST($6 AS varchar), CAST($7 AS varchar)
  WHERE NOT EXISTS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar))
    OR EXISTS (SELECT 1 FROM free)
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, CREATED_DATE = GREATEST(l.CREATED_DATE, (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($5 AS bigint) * INTERVAL '1 microsecond'), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')
  RETURNING 1)
SELECT TRUE, '', '', CAST(0 AS bigint) FROM me
UNION ALL
SELECT FALSE, COALESCE(CAST(CLIENT_ID AS text), ''), COALESCE(HOLDER, ''), CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')) * 1000000 AS bigint)
FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND NOT EXISTS (SELECT 1 FROM me);

-- update (client_id, ttl, attempt, holder, lock_name, lock_key, region)
UPDATE INT_LOCK SET CLIENT_ID = CAST($1 AS bpchar), CREATED_DATE = GREATEST(CREATED_DATE, (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($2 AS bigint) * INTERVAL '1 microsecond'), ATTEMPT = CAST($3 AS bigint), HOLDER = CAST($4 AS varchar), LOCK_NAME = CAST($5 AS varchar)
WHERE LOCK_KEY = CAST($6 AS bpchar) AND REGION = CAST($7 AS varchar) AND ((CLIENT_ID = CAST($1 AS bpchar) AND ATTEMPT = CAST($3 AS bigint)) OR CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds'));

-- insert (lock_key, region, client_id, ttl, attempt, holder, lock_name)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, ATTEMPT, HOLDER, LOCK_NAME) VALUES (CAST($1 AS bpchar), CAST($2 AS varchar), CAST($3 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($4 AS bigint) * INTERVAL '1 microsecond', CAST($5 AS bigint), CAST($6 AS varchar), CAST($7 AS varchar)) ON CONFLICT (LOCK_KEY, REGION) DO NOTHING;

-- renew (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET CREATED_DATE = GREATEST(CREATED_DATE, (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($1 AS bigint) * INTERVAL '1 microsecond')
WHERE LOCK_KEY = CAST($2 AS bpchar) AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST($5 AS bigint)) AND CREATED_DATE >= (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds');

-- delete (lock_key, region, client_id, attempt)
DELETE FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND (CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint));

-- isAcquired (lock_key, region, client_id)
SELECT 1 FROM INT_LOCK
WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND CLIENT_ID = CAST($3 AS bpchar) AND CREATED_DATE >= (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds');

-- deleteExpired (region, after)
SELECT LOCK_KEY, CASE WHEN REGION <> CAST($1 AS varchar) THEN 0 WHEN CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') THEN 2 ELSE 1 END
FROM INT_LOCK WHERE LOCK_KEY > CAST($2 AS bpchar) ORDER BY LOCK_KEY LIMIT 1000;

-- list (region)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')) * 1000000 AS bigint) AS remaining, 0 AS made
FROM INT_LOCK WHERE REGION = CAST($1 AS varchar) ORDER BY LOCK_KEY;

-- get (region, lock_key)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')) * 1000000 AS bigint) AS remaining, 0 AS made
FROM INT_LOCK WHERE REGION = CAST($1 AS varchar) AND LOCK_KEY = CAST($2 AS bpchar);

-- endAfter (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET CREATED_DATE = (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($1 AS bigint) * INTERVAL '1 microsecond', ATTEMPT = -ATTEMPT
WHERE LOCK_KEY = CAST($2 AS bpchar) AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST($5 AS bigint));

-- release (client_id, attempt, holder, lock_key, region, seen_client, seen_attempt)
UPDATE INT_LOCK SET CLIENT_ID = CAST($1 AS bpchar), CREATED_DATE = (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10001000 microseconds'), ATTEMPT = CAST($2 AS bigint), HOLDER = CAST($3 AS varchar)
WHERE LOCK_KEY = CAST($4 AS bpchar) AND REGION = CAST($5 AS varchar) AND CLIENT_ID = $6 AND COALESCE(ATTEMPT, 0) = $7 AND CREATED_DATE >= (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds');

-- renew (ttl, lock_key, region)
UPDATE INT_LOCK SET CREATED_DATE = GREATEST(CREATED_DATE, (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($1 AS bigint) * INTERVAL '1 microsecond') WHERE LOCK_KEY = CAST($2 AS bpchar) AND REGION = CAST($3 AS varchar) AND CREATED_DATE >= (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds');

-- regions ()
SELECT DISTINCT REGION FROM INT_LOCK ORDER BY REGION;

-- assert ()
WITH held AS (
  SELECT COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')) * 1000000 AS bigint) AS remaining
  FROM INT_LOCK WHERE LOCK_KEY = CAST(E'{escaped}' AS bpchar) AND REGION = '{region}' FOR UPDATE)
SELECT client_id, attempt, holder, remaining, FALSE AS unseen FROM held
UNION ALL
SELECT '', 0, '', 0, TRUE
WHERE NOT EXISTS (SELECT 1 FROM held) AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable');

-- acquire (all_keys, all_attempts, all_ttls, all_names, client_id, region, holder)
WITH asked AS MATERIALIZED (
  SELECT r.want_key, r.want_attempt, r.want_ttl, r.want_name, there.client_id, there.holder, there.remaining, there.mine,
    there.lock_key IS NULL OR free.yes IS NOT NULL AS go
  FROM (SELECT CAST(want_key AS bpchar) AS want_key, want_attempt, want_ttl, want_name
  FROM unnest((SELECT CAST(CAST($1 AS text) AS text[])), (SELECT CAST(CAST($2 AS text) AS bigint[])),
    (SELECT CAST(CAST($3 AS text) AS bigint[])), (SELECT CAST(CAST($4 AS text) AS varchar[]))) AS list (want_key, want_attempt, want_ttl, want_name)) AS r
  LEFT JOIN LATERAL (
    SELECT LOCK_KEY, CLIENT_ID, HOLDER, CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')) * 1000000 AS bigint) AS remaining, (CLIENT_ID = CAST($5 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint)) IS TRUE AS mine
    FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($6 AS varchar) LIMIT 1) AS there ON TRUE
  LEFT JOIN LATERAL (
    SELECT TRUE AS yes FROM INT_LOCK
    WHERE there.lock_key IS NOT NULL AND LOCK_KEY = r.want_key AND REGION = CAST($6 AS varchar) AND ((CLIENT_ID = CAST($5 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint)) OR CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds'))
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS free ON TRUE),
me AS (
  INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, ATTEMPT, HOLDER, LOCK_NAME)
  SELECT CAST(r.want_key AS bpchar), CAST($6 AS varchar), CAST($5 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST(r.want_ttl AS bigint) * INTERVAL '1 microsecond', CAST(r.want_attempt AS bigint), CAST($7 AS varchar), CAST(r.want_name AS varchar) FROM asked AS r WHERE go
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, CREATED_DATE = GREATEST(l.CREATED_DATE, EXCLUDED.CREATED_DATE), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')
  RETURNING 1)
SELECT 3, '', '', '', COUNT(*) FROM me
UNION ALL
SELECT CASE WHEN mine OR remaining < 0 THEN 2 ELSE 0 END, CAST(want_key AS text), COALESCE(CAST(client_id AS text), ''), COALESCE(holder, ''), remaining
FROM asked WHERE NOT go;

-- delete (all_keys, all_attempts, region, client_id)
WITH asked AS MATERIALIZED (
  SELECT r.want_key, r.want_attempt, due.place, due.mine
  FROM (SELECT CAST(want_key AS bpchar) AS want_key, want_attempt
  FROM unnest((SELECT CAST(CAST($1 AS text) AS text[])), (SELECT CAST(CAST($2 AS text) AS bigint[]))) AS list (want_key, want_attempt)) AS r
  LEFT JOIN LATERAL (
    SELECT ctid AS place, LOCK_KEY AS mine FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint))
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS due ON TRUE),
gone AS (
  DELETE FROM INT_LOCK AS l USING asked WHERE l.ctid = asked.place AND asked.mine = asked.want_key
  RETURNING 1)
SELECT 3, '', COUNT(*) FROM gone
UNION ALL
SELECT CASE WHEN EXISTS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($3 AS varchar) AND (CLIENT_ID = CAST($4 AS bpchar) AND ATTEMPT = CAST(r.want_attempt AS bigint)) OFFSET 0) THEN 2 ELSE 0 END,
  CAST(r.want_key AS text), 0 FROM asked AS r WHERE mine IS NULL;

-- deleteExpired (all_keys, all_attempts, region)
WITH asked AS MATERIALIZED (
  SELECT r.want_key, due.place, due.mine
  FROM (SELECT CAST(want_key AS bpchar) AS want_key, want_attempt
  FROM unnest((SELECT CAST(CAST($1 AS text) AS text[])), (SELECT CAST(CAST($2 AS text) AS bigint[]))) AS list (want_key, want_attempt)) AS r
  CROSS JOIN LATERAL (
    SELECT ctid AS place, LOCK_KEY AS mine FROM INT_LOCK WHERE LOCK_KEY = r.want_key AND REGION = CAST($3 AS varchar) AND CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS due)
DELETE FROM INT_LOCK AS l USING asked WHERE l.ctid = asked.place AND asked.mine = asked.want_key;

-- renew (lock_key_0, region, client_id, attempt_0, ttl)
WITH due AS (
  SELECT LOCK_KEY FROM INT_LOCK WHERE LOCK_KEY IN (CAST($1 AS bpchar)) AND REGION = CAST($2 AS varchar) AND CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT IN (CAST($4 AS bigint)) AND CREATED_DATE >= (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')
  ORDER BY LOCK_KEY FOR UPDATE SKIP LOCKED)
UPDATE INT_LOCK AS l SET CREATED_DATE = GREATEST(l.CREATED_DATE, (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($5 AS bigint) * INTERVAL '1 microsecond')
FROM due WHERE l.LOCK_KEY = due.LOCK_KEY AND l.REGION = CAST($2 AS varchar);

-- renew (region, lock_key_0)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')) * 1000000 AS bigint) AS remaining
FROM INT_LOCK WHERE REGION = CAST($1 AS varchar) AND LOCK_KEY IN (CAST($2 AS bpchar));

-- With tokens, where that differs. What draws a token alone follows a grant
-- where acquire cannot, and after custom queries.

-- acquire (lock_key, region, client_id, attempt, ttl, holder, lock_name)
WITH free AS (
  SELECT 1 FROM INT_LOCK
  WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND ((CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint)) OR CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds'))
  FOR UPDATE SKIP LOCKED),
me AS (
  INSERT INTO INT_LOCK AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, ATTEMPT, HOLDER, LOCK_NAME)
  SELECT CAST($1 AS bpchar), CAST($2 AS varchar), CAST($3 AS bpchar), (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($5 AS bigint) * INTERVAL '1 microsecond', CAST($4 AS bigint), CAST($6 AS varchar), CAST($7 AS varchar)
  WHERE NOT EXISTS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar))
    OR EXISTS (SELECT 1 FROM free)
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, CREATED_DATE = GREATEST(l.CREATED_DATE, (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') + CAST($5 AS bigint) * INTERVAL '1 microsecond'), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.CREATED_DATE < (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')
  RETURNING nextval('INT_LOCK_TOKEN') AS TOKEN)
SELECT TRUE, '', '', TOKEN FROM me
UNION ALL
SELECT FALSE, COALESCE(CAST(CLIENT_ID AS text), ''), COALESCE(HOLDER, ''), CAST(EXTRACT(EPOCH FROM CREATED_DATE - (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds')) * 1000000 AS bigint)
FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND NOT EXISTS (SELECT 1 FROM me);

-- draw token (lock_key, region, client_id, attempt)
WITH me AS (SELECT 1 FROM INT_LOCK WHERE LOCK_KEY = CAST($1 AS bpchar) AND REGION = CAST($2 AS varchar) AND (CLIENT_ID = CAST($3 AS bpchar) AND ATTEMPT = CAST($4 AS bigint)) AND CREATED_DATE >= (statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '10000000 microseconds') FOR UPDATE)
SELECT nextval('INT_LOCK_TOKEN') FROM me;

