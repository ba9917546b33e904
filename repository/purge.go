package repository

import (
	"bytes"
	"context"
	"database/sql"
)

// A step of DeleteExpired looks at so many rows, of whatever region, and deletes
// so many at most: few enough that nobody notices. The look locks nothing. As
// REGION is the second column of the primary key, it reads other regions' rows
// too; were they not counted, a step could read a million of them.
//
// The second column is 0 for a row of another region, 1 for one of ours that is
// live and 2 for one that has expired.
const (
	purgeLookText = `SELECT LOCK_KEY, CASE WHEN REGION <> :region THEN 0 WHEN {expires} < {now} THEN 2 ELSE 1 END
FROM {table} WHERE LOCK_KEY > {after} ORDER BY LOCK_KEY LIMIT 1000`

	lookedRows = 1000 // the LIMIT
	purgedRows = 256
)

// DeleteExpired implements LockRepository. It looks at up to 1000 rows, of all
// regions, without locking any, and deletes up to 256 expired ones of its own, after
// another look at their expiry under their locks: a lease that was renewed or taken over
// meanwhile stays. So does, for another time, a row that a transaction has locked.
func (r *DefaultLockRepository) DeleteExpired(ctx context.Context, after string) (deleted int64, next string, err error) {
	if err := r.ready(); err != nil {
		return 0, "", err
	}
	if after != "" {
		if err := CheckKey(after); err != nil {
			return 0, "", err
		}
	}
	due, next, err := r.lookForExpired(ctx, after)
	if err != nil || len(due) == 0 {
		return 0, next, err
	}
	result, _, err := r.many.purge.exec(ctx, r.db, r.listValues(due))
	if err != nil {
		return 0, "", r.fail(r.many.purge, err)
	}
	deleted, err = result.RowsAffected()
	return deleted, next, r.wrap(r.many.purge.op, err)
}

// lookForExpired returns what has expired among the next rows, and the key to go
// on after. A key may have a row in each region, and the look may end between
// them. Then the next one begins with that key once more.
func (r *DefaultLockRepository) lookForExpired(ctx context.Context, after string) (due []item, next string, err error) {
	v := r.values(Lease{})
	v["after"] = after
	var key sql.RawBytes
	var what int
	var last, before string // the key of the last row, and the one before that key
	looked, ours := 0, false
	_, err = r.purgeLook.each(ctx, r.db, v, func() {
		looked++
		if len(due) == purgedRows {
			return // the next step begins behind the last one of these
		}
		if key := bytes.TrimRight(key, " "); string(key) != last {
			before, last, ours = last, string(key), false
		}
		ours = ours || what > 0
		if what == 2 {
			due = append(due, item{key: last})
		}
	}, &key, &what)
	switch {
	case err != nil:
		return nil, "", r.fail(r.purgeLook, err)
	case len(due) == purgedRows || looked >= lookedRows && ours:
		return due, last, nil
	case looked < lookedRows:
		return due, "", nil
	case before != "":
		return due, before, nil
	}
	// A thousand regions have this key. Whether ours is one of them, and has
	// expired, is then only looked at when it is to be deleted.
	return []item{{key: last}}, last, nil
}
