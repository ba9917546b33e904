package repository

import (
	"strconv"
	"time"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/jmoiron/sqlx"
)

// SQLite stores the two dates as integer milliseconds since 1970: it has no
// date type, and a date as text would be compared as text. unixepoch gives the
// clock at the start of the statement; a TTL is rounded up to milliseconds.
//
// There is no network, so a "round trip" is a function call, and acquire makes
// two: a read first, which needs no lock and tells who holds the key, so that
// those who wait stay out of the database's one place for a writer; then the
// write, which alone decides.
func sqlite() dialect {
	const clock = "CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)"
	return dialect{
		vendor:   vendor.SQLite,
		bindType: sqlx.QUESTION,
		clock:    clock,
		max:      "max",
		end:      "{now} + (:ttl + 999) / 1000",
		left:     "({expires} - {now}) * 1000",
		shift: func(d time.Duration) string {
			return "(" + clock + " - " + strconv.FormatInt(d.Milliseconds(), 10) + ")"
		},
		peek:       peekText,
		alwaysPeek: true,
		acquire: `INSERT INTO {table} ({columns}) VALUES ({row})
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
SET CLIENT_ID = excluded.CLIENT_ID, {expires} = {later}, ATTEMPT = excluded.ATTEMPT,
  HOLDER = excluded.HOLDER, LOCK_NAME = excluded.LOCK_NAME
WHERE {mine} OR {expires} < {now}
RETURNING 1, '', '', 0`,
		run: answerRow,
		many: batchDialect{
			lists: list,
			look:  lookManyText("FROM " + sqliteRequests + " CROSS JOIN {table} AS l"),
			acquire: `INSERT INTO {table} ({columns})
SELECT {row} FROM ` + sqliteRequests + ` WHERE TRUE ORDER BY r.want_key
ON CONFLICT (LOCK_KEY, REGION) DO UPDATE
SET CLIENT_ID = excluded.CLIENT_ID, {expires} = max({expires}, excluded.{expires}), ATTEMPT = excluded.ATTEMPT,
  HOLDER = excluded.HOLDER, LOCK_NAME = excluded.LOCK_NAME
WHERE (CLIENT_ID = excluded.CLIENT_ID AND ATTEMPT = excluded.ATTEMPT) OR {expires} < {now}
RETURNING LOCK_KEY, CLIENT_ID, ATTEMPT, '', 0, 0`,
			// A row of the answer for each lease that stands. Which token goes to
			// which of them is all the same.
			draw: `INSERT INTO {tokens} (ID, TOKEN)
SELECT 1, 1 FROM ` + sqliteRequests + ` CROSS JOIN {table} AS l
WHERE l.LOCK_KEY = r.want_key AND l.REGION = :region AND l.CLIENT_ID = :client_id AND l.ATTEMPT = r.want_attempt AND l.{expires} >= {now}
ON CONFLICT (ID) DO UPDATE SET TOKEN = TOKEN + 1
RETURNING TOKEN`,
			remove: `DELETE FROM {table} WHERE REGION = :region AND CLIENT_ID = :client_id
AND LOCK_KEY IN (SELECT r.want_key FROM ` + sqliteRequests + `) AND ATTEMPT IN (SELECT r.want_attempt FROM ` + sqliteRequests + `)
RETURNING 1, LOCK_KEY`,
			purge: `DELETE FROM {table} WHERE REGION = :region
AND LOCK_KEY IN (SELECT r.want_key FROM ` + sqliteRequests + `) AND {expires} < {now}`,
			take:     takeAfterLook,
			drawn:    drawnInAnyOrder,
			giveBack: giveBackAtOnce,
		},
		draw: `INSERT INTO {tokens} (ID, TOKEN)
SELECT 1, 1 FROM {table} WHERE ` + standsText + `
ON CONFLICT (ID) DO UPDATE SET TOKEN = TOKEN + 1
RETURNING TOKEN`,
		drawn:     drawnRow,
		insert:    `INSERT INTO {table} ({columns}) VALUES ({row}) ON CONFLICT (LOCK_KEY, REGION) DO NOTHING`,
		renew:     renewText,
		renewMany: `UPDATE {table} SET {expires} = {later} WHERE ` + dueText,
		// A read would lock nothing: the next holder could begin before this
		// transaction writes. An UPDATE, even of no row, makes it the one
		// writer until it ends, or fails if it has read what is not the newest.
		assert: `UPDATE {table} SET CLIENT_ID = CLIENT_ID WHERE LOCK_KEY = CAST(X'{hex}' AS TEXT) AND REGION = '{region}'
RETURNING ` + leaseColumns,
		changed:    changedOne,
		columnType: map[string]string{"ATTEMPT": "INTEGER", "HOLDER": "TEXT", "LOCK_NAME": "TEXT", "EXPIRED_AFTER": "INTEGER NOT NULL DEFAULT 0"},
		timeTypes:  []string{"INTEGER", "BIGINT", "INT"},
		class: func(err error) class {
			code, ok := sqliteCode(err)
			if ok && (code&0xff == 5 || code&0xff == 6) { // busy, locked
				return refused
			}
			return permanent
		},
	}
}

// sqliteRequests are the rows of a batch. A NUL cannot be in a name, nor in JSON.
const sqliteRequests = `(
  SELECT value ->> 0 AS want_key, value ->> 1 AS want_attempt, value ->> 2 AS want_ttl, value ->> 3 AS want_name FROM json_each(:requests)) AS r`
