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
// hour or so, from one place.
//
// It goes through the table in small steps, and pauses after each for as long as
// it took, so that nobody who wants a lock waits for it noticeably. It ends with
// ctx, and with the registry, with what it has deleted up to then. While the
// database does not answer it tries again for WithOutageLimit's time.
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
