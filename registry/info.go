package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/intlock/intlock/repository"
)

// Info returns the row of key, and whether somebody holds it now, this registry
// included: what Spring's isAcquired asks, but for every client. It is a look that
// is out of date when it returns; only a lock call decides. held is false, and the
// row that of the last holder or nobody's, once the lease has expired.
//
// Errors: ErrUnavailable if the database did not answer, ErrClosed, ErrInvalid.
func (r *JdbcLockRegistry) Info(ctx context.Context, key string) (info repository.LockInfo, held bool, err error) {
	r.background.begin()
	defer r.background.finish()
	if r.isClosing() {
		return info, false, fmt.Errorf("%w: look at lock %s", ErrClosed, quote(key))
	}
	path, err := r.path(key)
	if err != nil {
		return info, false, err
	}
	found := false // written before the answer, and read only after it
	info, err = await(ask(ctx, r, longestStatement, func(ctx context.Context) (info repository.LockInfo, err error) {
		info, found, err = r.repo.Get(ctx, path)
		return info, err
	}), longestStatement, ctx.Done(), r.closing)
	switch {
	case err == nil:
		return info, found && info.Held(), nil
	case errors.Is(err, errAbandoned) && r.isClosing():
		return info, false, fmt.Errorf("%w: look at lock %s", ErrClosed, quote(key))
	case errors.Is(err, errAbandoned):
		return info, false, fmt.Errorf("registry: look at lock %s: %w", quote(key), contextCause(ctx))
	case errors.Is(err, repository.ErrTransient):
		return info, false, unavailable("look at", key, err)
	}
	return info, false, fmt.Errorf("registry: look at lock %s: %w", quote(key), err)
}
