package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

// store is the message store: what has arrived of each group, which groups are
// complete, and the outbox, from where results would be sent on.
//
// It knows nothing of locks. Between load and save anything may happen to the
// group, unless the caller holds the group's lock.
type store struct {
	db     *sqlx.DB
	vendor string
	run    string // the RUN_ID of all its rows
}

// group is what the store has of one group.
type group struct {
	key        string
	exists     bool
	complete   bool
	lastWorker int
	amounts    map[int]int64 // by sequence number; empty once the group is complete
}

// load reads the state of a group.
func (s *store) load(ctx context.Context, key string) (*group, error) {
	g := &group{key: key, amounts: make(map[int]int64)}
	var rows []struct {
		Complete   int   `db:"complete"`
		LastWorker int   `db:"last_worker"`
		Seq        int   `db:"seq"`
		Amount     int64 `db:"amount"`
	}
	err := s.db.SelectContext(ctx, &rows, s.db.Rebind(`SELECT
  g.COMPLETE AS complete, g.LAST_WORKER AS last_worker, m.SEQ AS seq, m.AMOUNT AS amount
FROM AGG_GROUP g JOIN AGG_MESSAGE m ON m.RUN_ID = g.RUN_ID AND m.GROUP_KEY = g.GROUP_KEY
WHERE g.RUN_ID = ? AND g.GROUP_KEY = ?`), s.run, key)
	if err != nil {
		return nil, fmt.Errorf("load group %s: %w", key, err)
	}
	for _, row := range rows {
		g.exists, g.complete, g.lastWorker = true, row.Complete != 0, row.LastWorker
		g.amounts[row.Seq] = row.Amount
	}
	return g, nil
}

// put adds a message to what was loaded.
func (g *group) put(d delivery) {
	g.amounts[d.Seq] = d.Amount
	g.complete = len(g.amounts) == d.Size
}

// save stores a message that was put into g, and if that completed the group,
// its result. One transaction: a group is complete exactly when its result is
// in the outbox, whatever happens to this process.
//
// ctx is the hold's: when the lock is lost it ends and takes the transaction
// with it. beforeCommit has the last word: on its error nothing is stored.
func (s *store) save(ctx context.Context, g *group, d delivery, worker int, beforeCommit func(*sqlx.Tx) error) error {
	complete := 0
	if g.complete {
		complete = 1
	}
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return fmt.Errorf("save group %s: %w", g.key, err)
	}
	defer tx.Rollback() // does nothing after a commit
	exec := func(query string, args ...any) {
		if err == nil {
			_, err = tx.ExecContext(ctx, tx.Rebind(query), args...)
		}
	}
	// load has looked whether the message is there, but an INSERT that may be
	// repeated is worth having in its own right.
	exec(s.orIgnore(`INSERT INTO AGG_MESSAGE (RUN_ID, GROUP_KEY, SEQ, AMOUNT) VALUES (?, ?, ?, ?)`),
		s.run, g.key, d.Seq, d.Amount)
	if g.exists {
		exec(`UPDATE AGG_GROUP SET LAST_WORKER = ?, COMPLETE = ? WHERE RUN_ID = ? AND GROUP_KEY = ?`,
			worker, complete, s.run, g.key)
	} else {
		exec(s.orIgnore(`INSERT INTO AGG_GROUP (RUN_ID, GROUP_KEY, COMPLETE, LAST_WORKER) VALUES (?, ?, ?, ?)`),
			s.run, g.key, complete, worker)
	}
	if g.complete {
		exec(`INSERT INTO AGG_OUTBOX (ID, RUN_ID, GROUP_KEY, WORKER, RESULT) VALUES (?, ?, ?, ?, ?)`,
			uuid.NewString(), s.run, g.key, worker, result(g.inSequence()))
	}
	if err == nil {
		err = beforeCommit(tx)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("save group %s: %w", g.key, err)
	}
	return nil
}

// orIgnore makes an INSERT tolerate a row that is there: the one thing that
// this file needs and the four databases do not spell alike.
func (s *store) orIgnore(insert string) string {
	if s.vendor == "mysql" || s.vendor == "mariadb" {
		return strings.Replace(insert, "INSERT", "INSERT IGNORE", 1)
	}
	return insert + " ON CONFLICT DO NOTHING"
}

func (g *group) inSequence() []int64 {
	var all []int64
	for _, seq := range slices.Sorted(maps.Keys(g.amounts)) {
		all = append(all, g.amounts[seq])
	}
	return all
}

// result is the aggregate of a group: its amounts in sequence, and their sum.
func result(amounts []int64) string {
	var sum int64
	texts := make([]string, len(amounts))
	for i, a := range amounts {
		sum += a
		texts[i] = fmt.Sprint(a)
	}
	return fmt.Sprintf("%s = %d", strings.Join(texts, " + "), sum)
}

// output is a row of the outbox.
type output struct {
	Group  string `db:"group_key"`
	Worker int    `db:"worker"`
	Result string `db:"result"`
}

func (s *store) outputs(ctx context.Context) ([]output, error) {
	var all []output
	err := s.db.SelectContext(ctx, &all, s.db.Rebind(
		`SELECT GROUP_KEY AS group_key, WORKER AS worker, RESULT AS result FROM AGG_OUTBOX WHERE RUN_ID = ? ORDER BY GROUP_KEY`), s.run)
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	return all, nil
}
