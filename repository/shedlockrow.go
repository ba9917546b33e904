package repository

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// PathFor implements KeyMapper: a key is the name of the lock.
func (r *ShedLockRepository) PathFor(key string) (string, error) {
	if key == "" || utf8.RuneCountInString(key) > 64 || !utf8.ValidString(key) || strings.ContainsRune(key, 0) || strings.TrimSpace(key) != key {
		return "", invalid("name %s: ShedLock's table takes 1 to 64 characters of UTF-8, without a blank at either end", quote(key))
	}
	return key, nil
}

func (r *ShedLockRepository) ready(key string) error {
	if r.closed.Load() {
		return fmt.Errorf("%w: %s", ErrClosed, r)
	}
	_, err := r.PathFor(key)
	return err
}

// mine is the locked_by of a lease of this client, and ended that of one that was
// given back.
func (r *ShedLockRepository) mine(attempt int64) string {
	return r.config.holder + " [" + r.config.clientID + "/" + strconv.FormatInt(attempt, 36) + "]"
}

func (r *ShedLockRepository) ended() string { return r.config.holderText() }

// lockedBy takes a locked_by apart. That of a Java service is its host's name.
func lockedBy(text string) (clientID, holder string) {
	at := strings.LastIndex(text, " [")
	if at < 0 || !strings.HasSuffix(text, "]") {
		return "", text
	}
	clientID = text[at+2 : len(text)-1]
	if slash := strings.LastIndexByte(clientID, '/'); slash >= 0 {
		clientID = clientID[:slash]
	}
	return clientID, text[:at]
}

// shedlockRow is what a row says.
type shedlockRow struct {
	name, by   string
	left, made int64 // microseconds from now
}

func (w shedlockRow) info() LockInfo {
	left := time.Duration(w.left) * time.Microsecond
	if left == 0 {
		left = -time.Microsecond // free at the very instant
	}
	clientID, holder := lockedBy(w.by)
	return LockInfo{Key: w.name, Name: w.name, ClientID: clientID, Holder: holder, Age: -time.Duration(w.made) * time.Microsecond, Remaining: left}
}

func (r *ShedLockRepository) row(ctx context.Context, name string) (w shedlockRow, found bool, err error) {
	w.name = name
	found, _, err = r.look.query(ctx, r.core.db, values{"name": name}, &w.by, &w.left, &w.made)
	return w, found, r.fail(r.look, err)
}

// Acquire implements LockRepository: a look, and if the name is free one write,
// which alone decides.
func (r *ShedLockRepository) Acquire(ctx context.Context, req Request) (Outcome, error) {
	if err := r.ready(req.Key); err != nil {
		return Outcome{}, err
	}
	if req.Attempt <= 0 {
		return Outcome{}, invalid("attempt %d: want one from NewAttempt", req.Attempt)
	}
	if err := checkTTL(req.TTL); err != nil {
		return Outcome{}, err
	}
	w, found, err := r.row(ctx, req.Key)
	if err != nil {
		return Outcome{}, err
	}
	mine := r.mine(req.Attempt)
	s := r.update
	switch {
	case !found:
		s = r.insert
	case w.left > 0 && w.by == mine: // an earlier request of this attempt got through
		s = r.renew
	case w.left > 0:
		info := w.info()
		return Outcome{ClientID: info.ClientID, Holder: info.Holder, Remaining: info.Remaining}, nil
	}
	changed, err := r.write(ctx, s, values{"name": req.Key, "mine": mine, "ttl": roundUp(req.TTL)})
	if err != nil && s == r.insert && duplicateKey(err) {
		return Outcome{}, nil
	}
	if !changed && err == nil && s == r.renew {
		// It ended meanwhile, or there was nothing to change in it.
		w, found, err = r.row(ctx, req.Key)
		changed = found && w.by == mine && w.left > 0
	}
	return Outcome{Acquired: changed}, err
}

// write executes a statement about one row.
func (r *ShedLockRepository) write(ctx context.Context, s *statement, v values) (changed bool, err error) {
	result, sent, err := s.exec(ctx, r.core.db, v)
	if err != nil {
		return false, r.fail(s, err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 && sent.again() {
		err = errSentAgain
	}
	return n > 0, r.wrap(s.op, err)
}

// Renew implements LockRepository. It takes one lease at a time: a job has one.
func (r *ShedLockRepository) Renew(ctx context.Context, leases []Lease, ttl time.Duration) ([]LeaseStatus, error) {
	for _, lease := range leases {
		if err := r.ready(lease.Key); err != nil {
			return nil, err
		}
	}
	if err := checkTTL(ttl); err != nil || len(leases) == 0 {
		return nil, err
	}
	lease, mine := leases[0], r.mine(leases[0].Attempt)
	changed, err := r.write(ctx, r.renew, values{"name": lease.Key, "mine": mine, "ttl": roundUp(ttl)})
	if err != nil {
		return nil, err
	}
	if changed {
		return []LeaseStatus{{State: LeaseStands, Remaining: ttl}}, nil
	}
	w, found, err := r.row(ctx, lease.Key)
	status := LeaseStatus{State: LeaseTaken}
	switch {
	case err != nil:
		return nil, err
	case !found:
		status.State = LeaseDeleted
	case w.by != mine:
		status.ClientID, status.Holder = lockedBy(w.by)
	case w.left <= 0:
		status.State = LeaseExpired
	default: // it lasts longer already
		status = LeaseStatus{State: LeaseStands, Remaining: w.info().Remaining}
	}
	return []LeaseStatus{status}, nil
}

// Delete implements LockRepository: the row stays, and is free.
func (r *ShedLockRepository) Delete(ctx context.Context, lease Lease) (bool, error) {
	if err := r.ready(lease.Key); err != nil {
		return false, err
	}
	return r.write(ctx, r.remove, values{"name": lease.Key, "mine": r.mine(lease.Attempt), "ended": r.ended()})
}

// EndAfter implements LockRepository.
func (r *ShedLockRepository) EndAfter(ctx context.Context, lease Lease, d time.Duration) (bool, error) {
	if err := errors.Join(r.ready(lease.Key), checkTTL(d)); err != nil {
		return false, err
	}
	return r.write(ctx, r.endAfter, values{"name": lease.Key, "mine": r.mine(lease.Attempt), "ended": r.ended(), "ttl": roundUp(d)})
}
