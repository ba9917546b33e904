-- Layout of Spring 7

-- acquire (lock_key, region, client_id, attempt)
SELECT COALESCE(CLIENT_ID, ''), COALESCE(HOLDER, ''), (EXPIRED_AFTER - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000
FROM INT_LOCK WHERE LOCK_KEY = ? AND REGION = ? AND EXPIRED_AFTER >= CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) AND (CLIENT_ID = ? AND ATTEMPT = ?) IS NOT TRUE;

-- acquire (lock_key, region, client_id, ttl, attempt, holder, lock_name, ttl, client_id, attempt)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT, HOLDER, LOCK_NAME) VALUES (?, ?, ?, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER), CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000, ?, ?, ?)
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
SET CLIENT_ID = excluded.CLIENT_ID, EXPIRED_AFTER = max(EXPIRED_AFTER, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000), ATTEMPT = excluded.ATTEMPT,
  HOLDER = excluded.HOLDER, LOCK_NAME = excluded.LOCK_NAME
WHERE (CLIENT_ID = ? AND ATTEMPT = ?) OR EXPIRED_AFTER < CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING 1, '', '', 0;

-- update (client_id, ttl, attempt, holder, lock_name, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET CLIENT_ID = ?, EXPIRED_AFTER = max(EXPIRED_AFTER, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000), ATTEMPT = ?, HOLDER = ?, LOCK_NAME = ?
WHERE LOCK_KEY = ? AND REGION = ? AND ((CLIENT_ID = ? AND ATTEMPT = ?) OR EXPIRED_AFTER < CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER));

-- insert (lock_key, region, client_id, ttl, attempt, holder, lock_name)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT, HOLDER, LOCK_NAME) VALUES (?, ?, ?, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER), CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000, ?, ?, ?) ON CONFLICT (LOCK_KEY, REGION) DO NOTHING;

-- renew (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET EXPIRED_AFTER = max(EXPIRED_AFTER, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000)
WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?) AND EXPIRED_AFTER >= CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER);

-- delete (lock_key, region, client_id, attempt)
DELETE FROM INT_LOCK WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?);

-- isAcquired (lock_key, region, client_id)
SELECT 1 FROM INT_LOCK
WHERE LOCK_KEY = ? AND REGION = ? AND CLIENT_ID = ? AND EXPIRED_AFTER >= CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER);

-- deleteExpired (region, after)
SELECT LOCK_KEY, CASE WHEN REGION <> ? THEN 0 WHEN EXPIRED_AFTER < CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) THEN 2 ELSE 1 END
FROM INT_LOCK WHERE LOCK_KEY > ? ORDER BY LOCK_KEY LIMIT 1000;

-- list (region)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, (EXPIRED_AFTER - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000 AS remaining, (CREATED_DATE - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000 AS made
FROM INT_LOCK WHERE REGION = ? ORDER BY LOCK_KEY;

-- get (region, lock_key)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, (EXPIRED_AFTER - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000 AS remaining, (CREATED_DATE - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000 AS made
FROM INT_LOCK WHERE REGION = ? AND LOCK_KEY = ?;

-- endAfter (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET EXPIRED_AFTER = CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000, ATTEMPT = -ATTEMPT
WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?);

-- release (client_id, attempt, holder, lock_key, region, seen_client, seen_attempt)
UPDATE INT_LOCK SET CLIENT_ID = ?, EXPIRED_AFTER = (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 1), ATTEMPT = ?, HOLDER = ?
WHERE LOCK_KEY = ? AND REGION = ? AND CLIENT_ID = ? AND COALESCE(ATTEMPT, 0) = ? AND EXPIRED_AFTER >= CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER);

-- renew (ttl, lock_key, region)
UPDATE INT_LOCK SET EXPIRED_AFTER = max(EXPIRED_AFTER, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000) WHERE LOCK_KEY = ? AND REGION = ? AND EXPIRED_AFTER >= CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER);

-- regions ()
SELECT DISTINCT REGION FROM INT_LOCK ORDER BY REGION;

-- assert ()
UPDATE INT_LOCK SET CLIENT_ID = CLIENT_ID WHERE LOCK_KEY = CAST(X'{hex}' AS TEXT) AND REGION = '{region}'
RETURNING COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, (EXPIRED_AFTER - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000 AS remaining;

-- look (requests, region)
SELECT l.LOCK_KEY, COALESCE(l.CLIENT_ID, ''), COALESCE(l.ATTEMPT, 0), COALESCE(l.HOLDER, ''), (EXPIRED_AFTER - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000, 0
FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r CROSS JOIN INT_LOCK AS l
WHERE l.LOCK_KEY = r.want_key AND l.REGION = ?;

-- acquire (region, client_id, holder, requests)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER, ATTEMPT, HOLDER, LOCK_NAME)
SELECT r.want_key, ?, ?, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER), CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (r.want_ttl + 999) / 1000, r.want_attempt, ?, r.want_name FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r WHERE TRUE ORDER BY r.want_key
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
SET CLIENT_ID = excluded.CLIENT_ID, EXPIRED_AFTER = max(EXPIRED_AFTER, excluded.EXPIRED_AFTER), ATTEMPT = excluded.ATTEMPT,
  HOLDER = excluded.HOLDER, LOCK_NAME = excluded.LOCK_NAME
WHERE (CLIENT_ID = excluded.CLIENT_ID AND ATTEMPT = excluded.ATTEMPT) OR EXPIRED_AFTER < CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING LOCK_KEY, CLIENT_ID, ATTEMPT, '', 0, 0;

-- delete (region, client_id, requests, requests)
DELETE FROM INT_LOCK WHERE REGION = ? AND CLIENT_ID = ?
AND LOCK_KEY IN (SELECT r.want_key FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r) AND ATTEMPT IN (SELECT r.want_attempt FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r)
RETURNING 1, LOCK_KEY;

-- deleteExpired (region, requests)
DELETE FROM INT_LOCK WHERE REGION = ?
AND LOCK_KEY IN (SELECT r.want_key FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r) AND EXPIRED_AFTER < CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER);

-- renew (ttl, lock_key_0, region, client_id, attempt_0)
UPDATE INT_LOCK SET EXPIRED_AFTER = max(EXPIRED_AFTER, CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) + (? + 999) / 1000) WHERE LOCK_KEY IN (?) AND REGION = ? AND CLIENT_ID = ? AND ATTEMPT IN (?) AND EXPIRED_AFTER >= CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER);

-- renew (region, lock_key_0)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, (EXPIRED_AFTER - CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)) * 1000 AS remaining
FROM INT_LOCK WHERE REGION = ? AND LOCK_KEY IN (?);

-- With tokens, where that differs. What draws a token alone follows a grant
-- where acquire cannot, and after custom queries.

-- draw token (lock_key, region, client_id, attempt)
INSERT INTO INT_LOCK_TOKEN (ID, TOKEN)
SELECT 1, 1 FROM INT_LOCK WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?) AND EXPIRED_AFTER >= CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)
ON CONFLICT (ID) DO UPDATE SET TOKEN = TOKEN + 1
RETURNING TOKEN;

-- Layout of Spring 6.5 and older, timeToLive 10 s

-- acquire (lock_key, region, client_id, attempt)
SELECT COALESCE(CLIENT_ID, ''), COALESCE(HOLDER, ''), (CREATED_DATE - (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)) * 1000
FROM INT_LOCK WHERE LOCK_KEY = ? AND REGION = ? AND CREATED_DATE >= (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) AND (CLIENT_ID = ? AND ATTEMPT = ?) IS NOT TRUE;

-- acquire (lock_key, region, client_id, ttl, attempt, holder, lock_name, ttl, client_id, attempt)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, ATTEMPT, HOLDER, LOCK_NAME) VALUES (?, ?, ?, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000, ?, ?, ?)
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
SET CLIENT_ID = excluded.CLIENT_ID, CREATED_DATE = max(CREATED_DATE, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000), ATTEMPT = excluded.ATTEMPT,
  HOLDER = excluded.HOLDER, LOCK_NAME = excluded.LOCK_NAME
WHERE (CLIENT_ID = ? AND ATTEMPT = ?) OR CREATED_DATE < (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)
RETURNING 1, '', '', 0;

-- update (client_id, ttl, attempt, holder, lock_name, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET CLIENT_ID = ?, CREATED_DATE = max(CREATED_DATE, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000), ATTEMPT = ?, HOLDER = ?, LOCK_NAME = ?
WHERE LOCK_KEY = ? AND REGION = ? AND ((CLIENT_ID = ? AND ATTEMPT = ?) OR CREATED_DATE < (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000));

-- insert (lock_key, region, client_id, ttl, attempt, holder, lock_name)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, ATTEMPT, HOLDER, LOCK_NAME) VALUES (?, ?, ?, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000, ?, ?, ?) ON CONFLICT (LOCK_KEY, REGION) DO NOTHING;

-- renew (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET CREATED_DATE = max(CREATED_DATE, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000)
WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?) AND CREATED_DATE >= (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000);

-- delete (lock_key, region, client_id, attempt)
DELETE FROM INT_LOCK WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?);

-- isAcquired (lock_key, region, client_id)
SELECT 1 FROM INT_LOCK
WHERE LOCK_KEY = ? AND REGION = ? AND CLIENT_ID = ? AND CREATED_DATE >= (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000);

-- deleteExpired (region, after)
SELECT LOCK_KEY, CASE WHEN REGION <> ? THEN 0 WHEN CREATED_DATE < (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) THEN 2 ELSE 1 END
FROM INT_LOCK WHERE LOCK_KEY > ? ORDER BY LOCK_KEY LIMIT 1000;

-- list (region)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, (CREATED_DATE - (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)) * 1000 AS remaining, 0 AS made
FROM INT_LOCK WHERE REGION = ? ORDER BY LOCK_KEY;

-- get (region, lock_key)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt, COALESCE(HOLDER, '') AS holder,
  COALESCE(LOCK_NAME, '') AS lock_name, (CREATED_DATE - (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)) * 1000 AS remaining, 0 AS made
FROM INT_LOCK WHERE REGION = ? AND LOCK_KEY = ?;

-- endAfter (ttl, lock_key, region, client_id, attempt)
UPDATE INT_LOCK SET CREATED_DATE = (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000, ATTEMPT = -ATTEMPT
WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?);

-- release (client_id, attempt, holder, lock_key, region, seen_client, seen_attempt)
UPDATE INT_LOCK SET CLIENT_ID = ?, CREATED_DATE = (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10001), ATTEMPT = ?, HOLDER = ?
WHERE LOCK_KEY = ? AND REGION = ? AND CLIENT_ID = ? AND COALESCE(ATTEMPT, 0) = ? AND CREATED_DATE >= (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000);

-- renew (ttl, lock_key, region)
UPDATE INT_LOCK SET CREATED_DATE = max(CREATED_DATE, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000) WHERE LOCK_KEY = ? AND REGION = ? AND CREATED_DATE >= (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000);

-- regions ()
SELECT DISTINCT REGION FROM INT_LOCK ORDER BY REGION;

-- assert ()
UPDATE INT_LOCK SET CLIENT_ID = CLIENT_ID WHERE LOCK_KEY = CAST(X'{hex}' AS TEXT) AND REGION = '{region}'
RETURNING COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, (CREATED_DATE - (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)) * 1000 AS remaining;

-- look (requests, region)
SELECT l.LOCK_KEY, COALESCE(l.CLIENT_ID, ''), COALESCE(l.ATTEMPT, 0), COALESCE(l.HOLDER, ''), (CREATED_DATE - (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)) * 1000, 0
FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r CROSS JOIN INT_LOCK AS l
WHERE l.LOCK_KEY = r.want_key AND l.REGION = ?;

-- acquire (region, client_id, holder, requests)
INSERT INTO INT_LOCK (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE, ATTEMPT, HOLDER, LOCK_NAME)
SELECT r.want_key, ?, ?, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (r.want_ttl + 999) / 1000, r.want_attempt, ?, r.want_name FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r WHERE TRUE ORDER BY r.want_key
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
SET CLIENT_ID = excluded.CLIENT_ID, CREATED_DATE = max(CREATED_DATE, excluded.CREATED_DATE), ATTEMPT = excluded.ATTEMPT,
  HOLDER = excluded.HOLDER, LOCK_NAME = excluded.LOCK_NAME
WHERE (CLIENT_ID = excluded.CLIENT_ID AND ATTEMPT = excluded.ATTEMPT) OR CREATED_DATE < (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)
RETURNING LOCK_KEY, CLIENT_ID, ATTEMPT, '', 0, 0;

-- delete (region, client_id, requests, requests)
DELETE FROM INT_LOCK WHERE REGION = ? AND CLIENT_ID = ?
AND LOCK_KEY IN (SELECT r.want_key FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r) AND ATTEMPT IN (SELECT r.want_attempt FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r)
RETURNING 1, LOCK_KEY;

-- deleteExpired (region, requests)
DELETE FROM INT_LOCK WHERE REGION = ?
AND LOCK_KEY IN (SELECT r.want_key FROM (
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(?)) AS r) AND CREATED_DATE < (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000);

-- renew (ttl, lock_key_0, region, client_id, attempt_0)
UPDATE INT_LOCK SET CREATED_DATE = max(CREATED_DATE, (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000) + (? + 999) / 1000) WHERE LOCK_KEY IN (?) AND REGION = ? AND CLIENT_ID = ? AND ATTEMPT IN (?) AND CREATED_DATE >= (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000);

-- renew (region, lock_key_0)
SELECT LOCK_KEY AS lock_key, COALESCE(CLIENT_ID, '') AS client_id, COALESCE(ATTEMPT, 0) AS attempt,
  COALESCE(HOLDER, '') AS holder, (CREATED_DATE - (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)) * 1000 AS remaining
FROM INT_LOCK WHERE REGION = ? AND LOCK_KEY IN (?);

-- With tokens, where that differs. What draws a token alone follows a grant
-- where acquire cannot, and after custom queries.

-- draw token (lock_key, region, client_id, attempt)
INSERT INTO INT_LOCK_TOKEN (ID, TOKEN)
SELECT 1, 1 FROM INT_LOCK WHERE LOCK_KEY = ? AND REGION = ? AND (CLIENT_ID = ? AND ATTEMPT = ?) AND CREATED_DATE >= (CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) - 10000)
ON CONFLICT (ID) DO UPDATE SET TOKEN = TOKEN + 1
RETURNING TOKEN;

