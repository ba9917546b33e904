package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/repository"
)

// DeleteExpired deletes the expired rows of the region, whoever left them, and
// returns how many there were: Spring's deleteExpired. Nothing depends on it, as
// an expired lock can be had at once; it only keeps the table small. Where crashed
// processes leave many keys behind that nobody asks for again, call it once an
// hour or so, from one place. Several at once do no harm.
//
// A row is deleted only if its lease has ended by the database's clock at that
// moment: not one that was just renewed or taken over. One that a transaction has
// locked stays for the next time. A holder whose lease had ended all the same finds
// it lost as soon as it asks.
//
// It goes through the table in small steps, and pauses after each for as long as
// it took, so that nobody who wants a lock waits for it noticeably; a million rows
// take some seconds. It ends with ctx, whose error it then returns, and with the
// registry (ErrClosed). While the database does not answer it tries again for
// WithOutageLimit's time, then fails with ErrUnavailable. It always returns what it
// knows to have deleted up to then; a step whose answer was lost may have deleted
// more.
func (r *JdbcLockRegistry) DeleteExpired(ctx context.Context) (deleted int64, err error) {
	r.background.begin()
	defer r.background.finish()
	type step struct {
		deleted int64
		next    string
	}
	var trouble outage
	for after := ""; ; {
		switch {
		case r.isClosing():
			return deleted, fmt.Errorf("%w: delete expired locks", ErrClosed)
		case ctx.Err() != nil:
			return deleted, fmt.Errorf("registry: delete expired locks: %w", contextCause(ctx))
		}
		start := time.Now()
		done, err := await(ask(ctx, r, longestStatement, func(ctx context.Context) (s step, err error) {
			s.deleted, s.next, err = r.repo.DeleteExpired(ctx, after)
			return s, err
		}), longestStatement, ctx.Done(), r.closing)
		switch {
		case errors.Is(err, errAbandoned):
			continue // the top of the loop says why
		case err == nil:
			trouble.end()
			deleted += done.deleted
			if after = done.next; after == "" {
				return deleted, nil
			}
			r.sleep(ctx, time.Since(start))
		case !errors.Is(err, repository.ErrTransient):
			return deleted, fmt.Errorf("registry: delete expired locks: %w", err)
		case !trouble.patience("(expired locks)", err, r.config.outageLimit, r.config.logger):
			return deleted, fmt.Errorf("%w: delete expired locks: %w", ErrUnavailable, err)
		default:
			r.sleep(ctx, trouble.backoff.next())
		}
	}
}
