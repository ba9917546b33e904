package repository

import (
	"bytes"
	"context"
	"database/sql"
)

// A step of DeleteExpired looks at so many rows, and deletes so many at most:
// few enough that nobody notices. The look locks nothing. It goes by the region's
// keys, and only reads rows of other regions on its way.
const (
	purgeLookText = `SELECT LOCK_KEY, CASE WHEN {expires} < {now} THEN 1 ELSE 0 END
FROM {table} WHERE REGION = :region AND LOCK_KEY > {after} ORDER BY LOCK_KEY LIMIT 1000`

	purgedRows = 256
)

// DeleteExpired implements LockRepository. It looks at up to 1000 rows, without
// locking any, and deletes up to 256 expired ones, after another look at their
// expiry. A row that a transaction has locked is left for another time.
func (r *DefaultLockRepository) DeleteExpired(ctx context.Context, after string) (deleted int64, next string, err error) {
	if err := r.ready(); err != nil {
		return 0, "", err
	}
	if after != "" {
		if err := CheckKey(after); err != nil {
			return 0, "", err
		}
	}
	v := r.values(Lease{})
	v["after"] = after
	var key sql.RawBytes
	var expired bool
	var due []item
	looked := 0
	_, err = r.purgeLook.each(ctx, r.db, v, func() {
		looked++
		if len(due) == purgedRows {
			return // the next step begins behind the last one of these
		}
		next = string(bytes.TrimRight(key, " "))
		if expired {
			due = append(due, item{key: next})
		}
	}, &key, &expired)
	if err != nil {
		return 0, "", r.fail(r.purgeLook, err)
	}
	if looked < 1000 && len(due) < purgedRows {
		next = ""
	}
	if len(due) == 0 {
		return 0, next, nil
	}
	result, _, err := r.many.purge.exec(ctx, r.db, r.listValues(due))
	if err != nil {
		return 0, "", r.fail(r.many.purge, err)
	}
	deleted, err = result.RowsAffected()
	return deleted, next, r.wrap(r.many.purge.op, err)
}
