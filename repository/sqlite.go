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
