package repository

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func (r *DefaultLockRepository) values(lease Lease) values {
	return values{"lock_key": lease.Key, "region": r.config.region, "client_id": r.config.clientID, "attempt": lease.Attempt}
}

func (r *DefaultLockRepository) ready() error {
	if r.closed.Load() {
		return fmt.Errorf("%w: %s", ErrClosed, r)
	}
	return nil
}

// fail wraps a statement's error, and has the statement prepared anew if that
// is what the error asks for.
func (r *DefaultLockRepository) fail(s *statement, err error) error {
	if err != nil && lostStatement(err) && !r.db.plain.Swap(true) {
		for _, all := range r.statements() {
			all.forget()
		}
	}
	if err != nil && outdatedStatement(err) {
		s.forget()
	}
	return r.wrap(s.op, err)
}

// Acquire implements LockRepository.
func (r *DefaultLockRepository) Acquire(ctx context.Context, req Request) (Outcome, error) {
	if err := errors.Join(r.ready(), checkRequest(req)); err != nil {
		return Outcome{}, err
	}
	v := r.values(req.Lease())
	v["ttl"], v["holder"], v["lock_name"] = roundUp(req.TTL), r.config.holderText(), cleanName(req.Name)
	out, err := r.take(ctx, v, req.Polling)
	if err == nil && out.Acquired && r.draw != nil {
		repeated := out.Repeated
		out, err = r.drawToken(ctx, v)
		out.Repeated = repeated
	}
	return out, err
}

func (r *DefaultLockRepository) take(ctx context.Context, v values, polling bool) (Outcome, error) {
	if r.config.customAcquire() {
		return r.acquireInTwo(ctx, v)
	}
	if r.peek != nil && (polling || r.dialect.alwaysPeek) {
		var out Outcome
		var left int64
		held, _, err := r.peek.query(ctx, r.db, v, &out.ClientID, &out.Holder, &left)
		if err != nil || held {
			return out.held(left), r.fail(r.peek, err)
		}
	}
	out, err := r.dialect.run(ctx, r, v)
	return out, r.fail(r.acquire, err)
}

// acquireInTwo is Spring's path: update what is ours or expired, else insert.
// Each statement is atomic by itself, so no transaction holds them together,
// and two that race end with one row inserted and one "held".
func (r *DefaultLockRepository) acquireInTwo(ctx context.Context, v values) (Outcome, error) {
	again := false
	for _, s := range []*statement{r.update, r.insert} {
		result, sent, err := s.exec(ctx, r.db, v)
		again = again || sent.again()
		if err == nil {
			var changed bool
			if changed, err = r.dialect.changed(result); changed {
				return Outcome{Acquired: true, Repeated: again}, nil
			}
		}
		if err != nil && !(s == r.insert && duplicateKey(err)) {
			return Outcome{}, r.fail(s, err)
		}
		if s == r.insert && again {
			return Outcome{}, r.wrap(s.op, errSentAgain)
		}
	}
	return Outcome{}, nil
}

// errSentAgain: the second run found no row to change, perhaps because the
// first one, whose reply was lost, did the work.
var errSentAgain = errors.New("the connection broke and the driver sent the statement again; the outcome is unknown")

// Delete implements LockRepository.
func (r *DefaultLockRepository) Delete(ctx context.Context, lease Lease) (bool, error) {
	if err := errors.Join(r.ready(), CheckKey(lease.Key)); err != nil {
		return false, err
	}
	return r.end(ctx, r.remove, r.values(lease))
}

// EndAfter implements LockRepository.
func (r *DefaultLockRepository) EndAfter(ctx context.Context, lease Lease, d time.Duration) (bool, error) {
	if err := errors.Join(r.ready(), CheckKey(lease.Key), checkTTL(d)); err != nil {
		return false, err
	}
	v := r.values(lease)
	v["ttl"] = roundUp(d)
	return r.end(ctx, r.endAfter, v)
}

// end executes the last statement about a lease.
func (r *DefaultLockRepository) end(ctx context.Context, s *statement, v values) (bool, error) {
	result, sent, err := s.exec(ctx, r.db, v)
	if err != nil {
		return false, r.fail(s, err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 && sent.again() {
		err = errSentAgain
	}
	return n > 0, r.wrap(s.op, err)
}

// IsAcquired implements LockRepository.
func (r *DefaultLockRepository) IsAcquired(ctx context.Context, key string) (bool, error) {
	if err := errors.Join(r.ready(), CheckKey(key)); err != nil {
		return false, err
	}
	var one int
	found, _, err := r.isAcquired.query(ctx, r.db, r.values(Lease{Key: key}), &one)
	return found, r.fail(r.isAcquired, err)
}

// List implements LockRepository.
func (r *DefaultLockRepository) List(ctx context.Context) ([]LockInfo, error) {
	return r.ListRegion(ctx, r.config.region)
}

// ListRegion is List for any region.
func (r *DefaultLockRepository) ListRegion(ctx context.Context, region string) ([]LockInfo, error) {
	if err := r.ready(); err != nil {
		return nil, err
	}
	rows, err := r.list.rows(ctx, r.db, values{"region": region})
	if err != nil {
		return nil, r.fail(r.list, err)
	}
	infos := make([]LockInfo, len(rows))
	for i, row := range rows {
		infos[i] = row.info()
	}
	return infos, nil
}

// Get implements LockRepository.
func (r *DefaultLockRepository) Get(ctx context.Context, key string) (info LockInfo, found bool, err error) {
	if err := errors.Join(r.ready(), CheckKey(key)); err != nil {
		return LockInfo{}, false, err
	}
	rows, err := r.get.rows(ctx, r.db, r.values(Lease{Key: key}))
	if err != nil || len(rows) == 0 {
		return LockInfo{}, false, r.fail(r.get, err)
	}
	return rows[0].info(), true, nil
}

// held completes the outcome of a refused attempt. A lease that ran out while
// the answer was made is "ask soon".
func (o Outcome) held(leftMicros int64) Outcome {
	if o.Acquired {
		return Outcome{Acquired: true, Repeated: o.Repeated}
	}
	o.ClientID, o.Holder = owner(o.ClientID, o.Holder)
	o.Remaining = max(0, time.Duration(leftMicros)*time.Microsecond)
	return o
}

func checkRequest(req Request) error {
	if req.Attempt <= 0 {
		return invalid("attempt %d: want one from NewAttempt", req.Attempt)
	}
	return errors.Join(CheckKey(req.Key), checkTTL(req.TTL))
}

func checkLeases(leases []Lease) error {
	for _, lease := range leases {
		if err := CheckKey(lease.Key); err != nil {
			return err
		}
	}
	return nil
}

// roundUp gives a TTL in microseconds, never less than asked for.
func roundUp(ttl time.Duration) int64 { return int64((ttl + time.Microsecond - 1) / time.Microsecond) }
