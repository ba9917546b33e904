package repository

import (
	"context"
	"fmt"
	"time"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/jmoiron/sqlx"
)

// MySQL has no RETURNING, and the number of affected rows depends on the
// connection's clientFoundRows. The one channel that does not is
// LAST_INSERT_ID(expr), which travels in the same answer: 1 for acquired, else
// 2 + 2 * the microseconds left to the holder.
//
// INSERT ... ON DUPLICATE KEY UPDATE on the primary key takes one record lock
// and no gap lock, except when the row is deleted under those who wait for it:
// then two of them may deadlock, rarely with pauses between the tries, some
// times in a hundred grants without any, and one asks again. UPDATE, then INSERT, as Spring does it, deadlocks far more often.
//
// SET clauses see the values assigned before them (unless sql_mode has
// SIMULTANEOUS_ASSIGNMENT), so the order matters: the condition reads
// CLIENT_ID, ATTEMPT and the expiry, and stays what it was while CLIENT_ID and
// ATTEMPT become ours; the expiry, which could change it, comes last.
func mysql() dialect {
	const acquired = "IF(LAST_INSERT_ID(1) > 0, :attempt, 0)"
	return dialect{
		vendor:   vendor.MySQL,
		bindType: sqlx.QUESTION,
		clock:    "UTC_TIMESTAMP(6)",
		max:      "GREATEST",
		end:      "{now} + INTERVAL :ttl MICROSECOND",
		left:     "TIMESTAMPDIFF(MICROSECOND, {now}, {expires})",
		shift: func(d time.Duration) string {
			return "(UTC_TIMESTAMP(6) - INTERVAL " + micros(d) + " MICROSECOND)"
		},
		mark: acquired,
		acquire: `INSERT INTO {table} ({columns})
VALUES ({row})
` + onDuplicate(acquired, "IF(LAST_INSERT_ID(2 + 2 * GREATEST(0, {left})) > 0, ATTEMPT, ATTEMPT)"),
		run: insertID,
		many: batchDialect{
			lists:   list,
			look:    lookManyText("FROM " + mysqlRequests + " STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY)"),
			alone:   true,
			acquire: mysqlAcquireMany,
			draw: `REPLACE INTO {tokens} (LOCK_KEY, REGION)
SELECT l.LOCK_KEY, l.REGION FROM ` + mysqlRequests + ` STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.LOCK_KEY = r.want_key AND l.REGION = :region
WHERE l.CLIENT_ID = :client_id AND l.ATTEMPT = r.want_attempt AND l.{expires} >= {now} ORDER BY r.want_key FOR UPDATE OF l`,
			result: lookManyText("FROM " + mysqlRequests + " STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY)"),
			// The look at the lock row and at its number is one: the last number
			// that was drawn for a lease which stands is that lease's.
			resultToken: mysqlTokensOfMany,
			remove:      mysqlDeleteMany(mysqlMine, "FOR UPDATE OF t SKIP LOCKED"),
			purge:       mysqlDeleteMany(mysqlExpired, "FOR UPDATE OF t SKIP LOCKED"),
			take:        takeAfterLook,
			drawn:       drawnBefore,
			giveBack:    giveBackAfterLook,
		},
		// A refused attempt locks the row for a moment. If many poll, a renewal,
		// which passes locked rows, might never find it free.
		peek: peekText,
		// FOR UPDATE: the lock row is read as it is now, and stays so until the
		// token is drawn.
		draw: `REPLACE INTO {tokens} (LOCK_KEY, REGION)
SELECT LOCK_KEY, REGION FROM {table} WHERE ` + standsText + ` FOR UPDATE`,
		drawn:      drawnID,
		tokenGrant: "SELECT, INSERT, DELETE ON {tokens}",
		insert:     `INSERT INTO {table} ({columns}) VALUES ({row})`,
		renew:      renewByInsertID,
		renewMany:  renewBySkipping,
		changed:    changedByInsertID,
		// The locking read finds the newest row, whatever the transaction has
		// read before. The inner one goes by the transaction's snapshot and
		// does not find the lease in an older one, whose data are as old. It
		// refers to the row so that it comes second: under SERIALIZABLE it
		// locks too, and a shared lock first would deadlock. The introducer
		// makes a text of the bytes, whatever sql_mode says of backslashes.
		assert: `SELECT ` + leaseColumns + `,
  l.ATTEMPT <=> {attempted} AND NOT EXISTS (
    SELECT 1 FROM {table} AS old WHERE old.LOCK_KEY = l.LOCK_KEY AND old.REGION = l.REGION AND old.ATTEMPT = l.ATTEMPT) AS unseen
FROM {table} AS l WHERE LOCK_KEY = _ascii X'{hex}' AND REGION = '{region}' FOR UPDATE`,
		columnType: map[string]string{"ATTEMPT": "BIGINT", "HOLDER": "VARCHAR(255) CHARACTER SET utf8mb4",
			"LOCK_NAME": "VARCHAR(255) CHARACTER SET utf8mb4", "EXPIRED_AFTER": "DATETIME(6)"},
		timeTypes:  []string{"DATETIME"},
		class:      mysqlClass,
		setting:    "SELECT @@autocommit",
		settingWhy: "the connection runs with autocommit off, so no lock would ever be committed: leave autocommit=0 out of the DSN",
	}
}

// onDuplicate is the common half of MySQL's and MariaDB's acquire: take the
// row over if it is ours or expired, else leave every column as it is.
func onDuplicate(taken, kept string) string {
	const free = "({mine} OR {expires} < {now})"
	return `ON DUPLICATE KEY UPDATE
  CLIENT_ID = IF(` + free + `, :client_id, CLIENT_ID),
  ATTEMPT = IF(` + free + `, ` + taken + `, ` + kept + `),
  HOLDER = IF(` + free + `, :holder, HOLDER),
  LOCK_NAME = IF(` + free + `, :lock_name, LOCK_NAME),
  {expires} = IF(` + free + `, {later}, {expires})`
}

// mysqlRequests are the rows of a batch.
const mysqlRequests = `JSON_TABLE(:requests, '$[*]' COLUMNS (
  want_key CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', want_attempt BIGINT PATH '$[1]', want_ttl BIGINT PATH '$[2]',
  want_name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[3]')) AS r`

// mysqlAcquireMany writes the keys that a look before it did not find. Only one
// that somebody else takes in the meantime comes to the second half.
const mysqlAcquireMany = `INSERT INTO {table} ({columns})
SELECT {row} FROM ` + mysqlRequests + ` ORDER BY r.want_key
ON DUPLICATE KEY UPDATE
  CLIENT_ID = IF(` + mysqlFree + `, VALUES(CLIENT_ID), CLIENT_ID),
  ATTEMPT = IF(` + mysqlFree + `, VALUES(ATTEMPT), ATTEMPT),
  HOLDER = IF(` + mysqlFree + `, VALUES(HOLDER), HOLDER),
  LOCK_NAME = IF(` + mysqlFree + `, VALUES(LOCK_NAME), LOCK_NAME),
  {expires} = IF(` + mysqlFree + `, GREATEST({expires}, VALUES({expires})), {expires})`

const mysqlFree = "((CLIENT_ID = VALUES(CLIENT_ID) AND ATTEMPT = VALUES(ATTEMPT)) OR {expires} < {now})"

const mysqlTokensOfMany = `SELECT ` + foundColumns + `COALESCE(n.TOKEN, 0)
FROM ` + mysqlRequests + ` STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.LOCK_KEY = r.want_key AND l.REGION = :region
LEFT JOIN {tokens} AS n ON n.LOCK_KEY = l.LOCK_KEY AND n.REGION = l.REGION`

// Which rows of a list are deleted: those of its leases, or those that have ended.
const (
	mysqlMine    = "t.CLIENT_ID = :client_id AND t.ATTEMPT = r.want_attempt"
	mysqlExpired = "t.{expires} < {now}"
)

// mysqlDeleteMany passes locked rows, as renewBySkipping does. A plain DELETE
// would lock, until it is committed, every row that it reads, also those that it
// leaves; this one goes by whole primary keys, and locks neither others nor, unless a
// page is split meanwhile, gaps.
func mysqlDeleteMany(which, locking string) string {
	return `DELETE l FROM (
  SELECT t.LOCK_KEY FROM ` + mysqlRequests + ` STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.LOCK_KEY = r.want_key AND t.REGION = :region
  WHERE ` + which + `
  ORDER BY t.LOCK_KEY LIMIT 256 ` + locking + `) AS due
STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.LOCK_KEY = due.LOCK_KEY AND l.REGION = :region`
}

func insertID(ctx context.Context, r *DefaultLockRepository, v values) (Outcome, error) {
	result, sent, err := r.acquire.exec(ctx, r.db, v)
	if err != nil {
		return Outcome{}, err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return Outcome{}, err
	}
	if id <= 0 {
		return Outcome{}, fmt.Errorf("the server answered LAST_INSERT_ID %d, which the statement cannot produce; is a proxy rewriting it?", id)
	}
	return Outcome{Acquired: id == 1, Repeated: sent.again()}.held((id - 2) / 2), nil
}

// renewBySkipping leaves rows alone that somebody's transaction has locked, and
// nobody waits for them: UPDATE has no SKIP LOCKED, a SELECT has. The LIMIT
// keeps the optimizer from merging the inner query into the outer one, the
// STRAIGHT_JOIN and the index from reading, and waiting for, any other row.
const renewBySkipping = `UPDATE (
  SELECT LOCK_KEY FROM {table} FORCE INDEX (PRIMARY) WHERE ` + dueText + `
  ORDER BY LOCK_KEY LIMIT {size} FOR UPDATE SKIP LOCKED) AS due
STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.LOCK_KEY = due.LOCK_KEY AND l.REGION = :region
SET l.{expires} = GREATEST(l.{expires}, {end})`

// An UPDATE that finds the row but changes nothing, because two renewals fall
// into one microsecond, affects 0 rows; LAST_INSERT_ID says that it was found.
const renewByInsertID = `UPDATE {table} SET {expires} = {later}, ATTEMPT = IF(LAST_INSERT_ID(1) > 0, ATTEMPT, ATTEMPT)
WHERE LOCK_KEY = :lock_key AND REGION = :region AND {mine} AND {expires} >= {now}`

func changedByInsertID(r result) (bool, error) {
	if changed, err := changedOne(r); changed || err != nil {
		return changed, err
	}
	id, err := r.LastInsertId()
	return id == 1, err
}

// mysqlClass goes by the server's numbers. An error that it answers with has
// undone the statement; not so when the server or the connection ends.
func mysqlClass(err error) class {
	switch mysqlNumber(err) {
	case 1053, 1077, 1927, // shutting down, connection killed
		1158, 1159, 1160, 1161, // the network
		1317: // interrupted
		return doubtful
	case 1020, // record changed since it was read
		1040, 1203, 1226, // too many connections
		1205, 1213, 3101, // lock wait timeout, deadlock, conflict in a group
		3024, 1969, // statement timeout
		1047, // Galera: node not ready
		1412: // table definition changed
		return refused
	}
	if outdatedStatement(err) {
		return refused
	}
	return permanent
}
