package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/intlock/intlock/internal/vendor"
)

// Where the statement that takes a key can draw the token too, it does. Where
// it cannot (MySQL, SQLite, custom queries) a second statement draws it, on the
// condition that the lease still stands: without that, a process which was
// paused between the two could fetch a higher token than its successor's.
//
// In both cases the token is drawn while the lock row is locked by the drawing
// statement. The next grant has to change or insert that row, so it comes, and
// draws, later: tokens have the order of the grants.
//
// What is drawn counts up by one. A token is TokenStep times that, which leaves
// the numbers in between to the holder.

// standsText is the condition of the second statement.
const standsText = `LOCK_KEY = :lock_key AND REGION = :region AND {mine} AND {expires} >= {now}`

// errLeaseGone: the key was this attempt's and is not any more, so there is
// nothing to answer but "ask again". It is not "held": perhaps nobody has it.
var errLeaseGone = errors.New("the lease ended before its token was drawn")

// drawToken completes a grant.
func (r *DefaultLockRepository) drawToken(ctx context.Context, v values) (Outcome, error) {
	token, err := r.dialect.drawn(ctx, r, v)
	if err == nil && token == 0 {
		err = errLeaseGone
	}
	if err == nil {
		return Outcome{Acquired: true, Token: token * TokenStep}, nil
	}
	// Whatever became of this statement, the one before it has been executed.
	err = r.fail(r.draw, &sentError{runs: 2, error: err})
	if !errors.Is(err, ErrTransient) {
		_, _, _ = r.remove.exec(ctx, r.db, v) // a failure for good leaves no lock behind
	}
	return Outcome{}, err
}

// drawnRow reads the token from a row; no row is 0.
func drawnRow(ctx context.Context, r *DefaultLockRepository, v values) (token int64, err error) {
	_, _, err = r.draw.query(ctx, r.db, v, &token)
	return token, err
}

// drawnID reads the token as the AUTO_INCREMENT of the row that was written.
func drawnID(ctx context.Context, r *DefaultLockRepository, v values) (int64, error) {
	result, _, err := r.draw.exec(ctx, r.db, v)
	if err != nil {
		return 0, err
	}
	token, err := result.LastInsertId()
	if n, _ := result.RowsAffected(); err == nil && n > 0 && token <= 0 {
		err = errNoToken(r.config.prefix)
	}
	return token, err
}

// checkTokens is the start check's look at the token source. On Postgres the
// catalog tells everything; the other servers check names and rights when they
// prepare the statement, which it needs anyway.
func (r *DefaultLockRepository) checkTokens(ctx context.Context) error {
	source := vendor.TokenSource(r.config.prefix)
	if r.dialect.vendor != vendor.Postgres && !r.db.plain.Load() {
		s := r.acquire
		if r.draw != nil {
			s = r.draw
		}
		if _, err := s.prepare(ctx, r.db); err != nil {
			err = r.wrap("start check", err)
			if e := err.(*opError); e.class == permanent && e.hint == "" {
				e.kind, e.hint = ErrTable, source+" does not fit: see schema.Check for what to change"
				if denied(err) {
					e.hint = r.tokenGrant()
				}
			}
			return err
		}
	}
	if r.dialect.tokenFault == "" {
		return nil
	}
	var fault string
	if err := r.ask(ctx, r.dialect.fill(r.dialect.tokenFault, r.config), &fault); err != nil {
		return err
	}
	switch fault {
	case "":
		return nil
	case "missing":
		return r.unusable("WithTokens needs "+source+", which is missing", r.createHint())
	case "denied":
		return r.unusable("the database role may not use the sequence "+source, r.tokenGrant())
	case "kind":
		return r.unusable(source+" is not a sequence", "choose another prefix, or drop it and run schema.Apply")
	}
	return r.unusable(fmt.Sprintf("the sequence %s has %s, so tokens would not rise with each grant", source, fault),
		"see schema.Check for the statement that changes it")
}

func (r *DefaultLockRepository) tokenGrant() string {
	return fmt.Sprintf("run: GRANT %s TO the user of this program", r.dialect.fill(r.dialect.tokenGrant, r.config))
}
