package repository

import (
	"context"
	"fmt"
	"time"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/jmoiron/sqlx"
)

// PostgreSQL. statement_timestamp() is the clock: now() would be the start of
// the transaction, and clock_timestamp() would give a statement that waited
// for a row lock a lease that starts after the wait, when perhaps nobody is
// listening for the answer any more.
//
// Parameters are cast because a bare one in a select list is text, and text
// against CHAR(36) would cost the primary key: a sequential scan.
func postgres() dialect {
	return dialect{
		vendor:   vendor.Postgres,
		bindType: sqlx.DOLLAR,
		clock:    "(statement_timestamp() AT TIME ZONE 'UTC')",
		max:      "GREATEST",
		end:      "{now} + CAST(:ttl AS bigint) * INTERVAL '1 microsecond'",
		left:     "CAST(EXTRACT(EPOCH FROM {expires} - {now}) * 1000000 AS bigint)",
		shift: func(d time.Duration) string {
			return "(statement_timestamp() AT TIME ZONE 'UTC' - INTERVAL '" + micros(d) + " microseconds')"
		},
		params: map[string]string{
			"lock_key":  "CAST(:lock_key AS bpchar)",
			"region":    "CAST(:region AS varchar)",
			"client_id": "CAST(:client_id AS bpchar)",
			"attempt":   "CAST(:attempt AS bigint)",
			"holder":    "CAST(:holder AS varchar)",
			"lock_name": "CAST(:lock_name AS varchar)",
		},
		acquire: postgresAcquire("1", "CAST(0 AS bigint)"),
		run:     answerRow,
		many: batchDialect{
			lists:        arrays,
			acquire:      postgresAcquireMany("1", "SELECT 3, '', '', '', COUNT(*) FROM me"),
			acquireToken: postgresAcquireMany("LOCK_KEY, nextval('{tokens}') AS number", "SELECT 1, CAST(LOCK_KEY AS text), '', '', number FROM me"),
			remove:       postgresDeleteMany,
			purge:        postgresPurge,
			take:         takeAtOnce,
			giveBack:     giveBackCounted,
		},
		// RETURNING comes after the row is ours. A number drawn in the VALUES
		// would go backwards: its statement may be overtaken before it gets the row.
		acquireToken: postgresAcquire("nextval('{tokens}') AS TOKEN", "TOKEN"),
		// In a WITH of its own the row is locked first, and a number drawn only
		// if the row, as it is then, is still ours.
		draw:       "WITH me AS (SELECT 1 FROM {table} WHERE " + standsText + " FOR UPDATE)\nSELECT nextval('{tokens}') FROM me",
		drawn:      drawnRow,
		tokenFault: postgresTokenFault,
		tokenGrant: "USAGE ON SEQUENCE {tokens}",
		insert:     `INSERT INTO {table} ({columns}) VALUES ({row}) ON CONFLICT (LOCK_KEY, REGION) DO NOTHING`,
		renew:      renewText,
		// SKIP LOCKED: a row that somebody's transaction has locked stays as it
		// is and nobody waits for it. As no statement waits for a row while it
		// has others, batches cannot deadlock.
		renewMany: `WITH due AS (
  SELECT LOCK_KEY FROM {table} WHERE ` + dueText + `
  ORDER BY LOCK_KEY FOR UPDATE SKIP LOCKED)
UPDATE {table} AS l SET {expires} = GREATEST(l.{expires}, {end})
FROM due WHERE l.LOCK_KEY = due.LOCK_KEY AND l.REGION = :region`,
		// Under the stricter levels a snapshot that is older than the lease
		// does not show its row: then it is unseen, which is not deleted.
		assert: `WITH held AS (
  SELECT ` + leaseColumns + `
  FROM {table} WHERE LOCK_KEY = CAST(E'{escaped}' AS bpchar) AND REGION = '{region}' FOR UPDATE)
SELECT client_id, attempt, holder, remaining, FALSE AS unseen FROM held
UNION ALL
SELECT '', 0, '', 0, TRUE
WHERE NOT EXISTS (SELECT 1 FROM held) AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable')`,
		changed:    changedOne,
		after:      "CAST(:after AS bpchar)",
		freed:      postgresFreed,
		columnType: map[string]string{"ATTEMPT": "BIGINT", "HOLDER": "VARCHAR(255)", "LOCK_NAME": "VARCHAR(255)", "EXPIRED_AFTER": "TIMESTAMP"},
		timeTypes:  []string{"TIMESTAMP"},
		class:      postgresClass,
	}
}

// postgresAcquire takes a key; number is what the answer has in the place of
// the holder's time left, and owned what it comes from.
//
// A row that is there is locked first, if it may be taken over, and left alone
// if somebody has locked it: a transaction that asserted the lock, or another
// take-over. So a refused attempt never comes to ON CONFLICT, which would lock
// the holder's row and wait for it: it draws no transaction id, writes no WAL,
// and does not end in a cancelled statement in the server's log. Where the row
// was freed after the statement's snapshot the answer is an early "held".
//
// Most keys are free, so the look for any row comes first: the other is then not
// carried out.
func postgresAcquire(owned, number string) string {
	return `WITH free AS (
  SELECT 1 FROM {table}
  WHERE LOCK_KEY = :lock_key AND REGION = :region AND ({mine} OR {expires} < {now})
  FOR UPDATE SKIP LOCKED),
me AS (
  INSERT INTO {table} AS l ({columns})
  SELECT {row}
  WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region)
    OR EXISTS (SELECT 1 FROM free)
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, {expires} = GREATEST(l.{expires}, {end}), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.{expires} < {now}
  RETURNING ` + owned + `)
SELECT TRUE, '', '', ` + number + ` FROM me
UNION ALL
SELECT FALSE, COALESCE(CAST(CLIENT_ID AS text), ''), COALESCE(HOLDER, ''), {left}
FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region AND NOT EXISTS (SELECT 1 FROM me)`
}

// postgresRequests are the rows of a batch. The arrays come as text, which any
// driver can send, and in a SELECT of their own, so that the planner does not
// look into them: it would make a new plan for every batch.
const postgresRequests = `SELECT CAST(want_key AS bpchar) AS want_key, want_attempt, want_ttl, want_name
  FROM unnest((SELECT CAST(CAST(:all_keys AS text) AS text[])), (SELECT CAST(CAST(:all_attempts AS text) AS bigint[])),
    (SELECT CAST(CAST(:all_ttls AS text) AS bigint[])), (SELECT CAST(CAST(:all_names AS text) AS varchar[]))) AS list (want_key, want_attempt, want_ttl, want_name)`

// postgresAcquireMany is postgresAcquire for a list of requests. Each key is
// looked up, locked if it may be taken over, and written, before the next one
// is: the inner queries are LATERAL and end after a row, so that the plan is a
// nested loop over the primary key whatever the table's size was once, and
// nothing sorts in between. As the list is in the order of the keys, so are the
// locks, and two batches cannot deadlock.
//
// The first column is what became of the request, see takeAtOnce. Those that are
// granted without a token are only counted: a row of the answer for each would be
// made by the server and read by the client for nothing. With tokens, a request
// that is not in the answer lost a race for a key that was free.
func postgresAcquireMany(returning, granted string) string {
	return `WITH asked AS MATERIALIZED (
  SELECT r.want_key, r.want_attempt, r.want_ttl, r.want_name, there.client_id, there.holder, there.remaining, there.mine,
    there.lock_key IS NULL OR free.yes IS NOT NULL AS go
  FROM (` + postgresRequests + `) AS r
  LEFT JOIN LATERAL (
    SELECT LOCK_KEY, CLIENT_ID, HOLDER, {left} AS remaining, {mine} IS TRUE AS mine
    FROM {table} WHERE LOCK_KEY = r.want_key AND REGION = :region LIMIT 1) AS there ON TRUE
  LEFT JOIN LATERAL (
    SELECT TRUE AS yes FROM {table}
    WHERE there.lock_key IS NOT NULL AND LOCK_KEY = r.want_key AND REGION = :region AND ({mine} OR {expires} < {now})
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS free ON TRUE),
me AS (
  INSERT INTO {table} AS l ({columns})
  SELECT {row} FROM asked AS r WHERE go
  ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
  SET CLIENT_ID = EXCLUDED.CLIENT_ID, {expires} = GREATEST(l.{expires}, EXCLUDED.{expires}), ATTEMPT = EXCLUDED.ATTEMPT,
    HOLDER = EXCLUDED.HOLDER, LOCK_NAME = EXCLUDED.LOCK_NAME
  WHERE (l.CLIENT_ID = EXCLUDED.CLIENT_ID AND l.ATTEMPT = EXCLUDED.ATTEMPT) OR l.{expires} < {now}
  RETURNING ` + returning + `)
` + granted + `
UNION ALL
SELECT CASE WHEN mine OR remaining < 0 THEN 2 ELSE 0 END, CAST(want_key AS text), COALESCE(CAST(client_id AS text), ''), COALESCE(holder, ''), remaining
FROM asked WHERE NOT go`
}

// postgresDeleteMany deletes the rows that it can lock at once, and counts them.
// The others are looked for: what is this lease's was locked, what is not is gone
// for certain. The row is deleted by its place, which stands while it is locked; one
// that was changed under the statement's snapshot is not found there, and then the
// count is too small. That due.mine equals the key is known; saying so lets the planner
// expect one row, and not prefer to read a small table as a whole.
const postgresDeleteMany = `WITH asked AS MATERIALIZED (
  SELECT r.want_key, r.want_attempt, due.place, due.mine
  FROM (` + postgresKeys + `) AS r
  LEFT JOIN LATERAL (
    SELECT ctid AS place, LOCK_KEY AS mine FROM {table} WHERE LOCK_KEY = r.want_key AND REGION = :region AND {mine}
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS due ON TRUE),
gone AS (
  DELETE FROM {table} AS l USING asked WHERE l.ctid = asked.place AND asked.mine = asked.want_key
  RETURNING 1{freed})
SELECT 3, '', COUNT(*) FROM gone
UNION ALL
SELECT CASE WHEN EXISTS (SELECT 1 FROM {table} WHERE LOCK_KEY = r.want_key AND REGION = :region AND {mine} OFFSET 0) THEN 2 ELSE 0 END,
  CAST(r.want_key AS text), 0 FROM asked AS r WHERE mine IS NULL`

// postgresPurge deletes what has expired of a list, but for locked rows: each is
// locked first, by its key, and looked at again as it is then. For due.mine see
// postgresDeleteMany; a plan made while the table is small reads all of it else,
// and is kept when the table has grown.
const postgresPurge = `WITH asked AS MATERIALIZED (
  SELECT r.want_key, due.place, due.mine
  FROM (` + postgresKeys + `) AS r
  CROSS JOIN LATERAL (
    SELECT ctid AS place, LOCK_KEY AS mine FROM {table} WHERE LOCK_KEY = r.want_key AND REGION = :region AND {expires} < {now}
    LIMIT 1 FOR UPDATE SKIP LOCKED) AS due)
DELETE FROM {table} AS l USING asked WHERE l.ctid = asked.place AND asked.mine = asked.want_key`

const postgresKeys = `SELECT CAST(want_key AS bpchar) AS want_key, want_attempt
  FROM unnest((SELECT CAST(CAST(:all_keys AS text) AS text[])), (SELECT CAST(CAST(:all_attempts AS text) AS bigint[]))) AS list (want_key, want_attempt)`

// postgresFreed wakes who waits for the key, and has the release committed
// without waiting for the disk. Who waits holds a shared advisory lock on the
// key's bucket; to take it for a moment, exclusively, asks whether somebody does.
// It draws no transaction id and writes nothing. The CASE keeps the order. SHA-256
// because a server whose OpenSSL is in FIPS mode refuses md5(), and the release
// with it.
func postgresFreed(c config) string {
	var text string
	if c.notify {
		bucket := fmt.Sprintf("%d, get_byte(sha256(convert_to(CAST(LOCK_KEY AS text), 'UTF8')), 0) %% %d", vendor.WaitClass, vendor.WaitBuckets)
		text = `,
  CASE WHEN CASE WHEN pg_try_advisory_lock(` + bucket + `) THEN NOT pg_advisory_unlock(` + bucket + `) ELSE TRUE END
    THEN pg_notify('` + vendor.WaitChannel + `', CAST(LOCK_KEY AS text)) END`
	}
	if c.asyncRelease {
		text += ", set_config('synchronous_commit', 'off', TRUE)"
	}
	return text
}

// The catalog, unlike an attempt to use what is missing or denied, leaves no
// error in the server's log.
const postgresTokenFault = `SELECT CASE
  WHEN c.oid IS NULL THEN 'missing'
  WHEN c.relkind <> 'S' THEN 'kind'
  WHEN NOT has_sequence_privilege(c.oid, 'USAGE, UPDATE') THEN 'denied'
  WHEN s.seqincrement < 1 OR s.seqstart < 1 THEN 'INCREMENT BY ' || s.seqincrement || ', START ' || s.seqstart
  WHEN s.seqcache > 1 THEN 'CACHE ' || s.seqcache
  WHEN s.seqcycle THEN 'CYCLE'
  ELSE '' END
FROM (SELECT to_regclass('{tokens}')) AS source (oid)
LEFT JOIN pg_class AS c ON c.oid = source.oid
LEFT JOIN pg_sequence AS s ON s.seqrelid = c.oid`

// postgresClass: an error that the server answers with has undone the
// statement, which is a transaction of its own; not so when the connection or
// the server ends (08, 57P) or when it says that it does not know (40003).
func postgresClass(err error) class {
	state := sqlState(err)
	switch {
	case state == "08P01": // the two sides do not understand each other
		return permanent
	case state == "40003", len(state) == 5 && (state[:2] == "08" || state[:3] == "57P"):
		return doubtful
	case state == "55P03", state == "57014", outdatedStatement(err), len(state) == 5 && (state[:2] == "40" || state[:2] == "53"):
		return refused
	}
	return permanent
}

const renewText = `UPDATE {table} SET {expires} = {later}
WHERE LOCK_KEY = :lock_key AND REGION = :region AND {mine} AND {expires} >= {now}`

func changedOne(r result) (bool, error) {
	n, err := r.RowsAffected()
	return n > 0, err // 2 for a custom ON DUPLICATE KEY UPDATE
}

// answerRow reads the four columns that Postgres, MariaDB and SQLite answer
// with. The number is the token of a grant, if acquire draws it, or what is left
// to the holder in a refusal. No row at all means that the key changed hands
// under the statement's snapshot.
func answerRow(ctx context.Context, r *DefaultLockRepository, v values) (Outcome, error) {
	var out Outcome
	var number int64
	_, sent, err := r.acquire.query(ctx, r.db, v, &out.Acquired, &out.ClientID, &out.Holder, &number)
	if err != nil {
		return Outcome{}, err
	}
	out.Repeated = sent.again()
	if out.Acquired && r.config.tokens && r.draw == nil {
		return Outcome{Acquired: true, Token: number * TokenStep, Repeated: out.Repeated}, nil
	}
	return out.held(number), nil
}
