package repository

import (
	"context"
	"errors"
	"strings"
	"time"
)

// What an operator does to somebody else's lease. The texts go by the key alone.
const (
	// The row becomes the operator's, whose lease is over: so its holder hears of it
	// with its next renewal, and of the reason, and whoever wants the key can have it.
	forceReleaseText = `UPDATE {table} SET CLIENT_ID = :client_id, {expires} = {past}, ATTEMPT = :attempt, HOLDER = :holder
WHERE LOCK_KEY = :lock_key AND REGION = :region AND CLIENT_ID = :seen_client AND COALESCE(ATTEMPT, 0) = :seen_attempt AND {expires} >= {now}`

	forceRenewText = `UPDATE {table} SET {expires} = {later} WHERE LOCK_KEY = :lock_key AND REGION = :region AND {expires} >= {now}`

	regionsText = `SELECT DISTINCT REGION FROM {table} ORDER BY REGION`
)

// ForceRelease takes a key away from whoever holds it: an operator's last resort. seen
// is what Get has told of the key: if somebody else holds it by now, nobody loses it. The
// holder's next renewal, assertion or release finds the lease taken, by this
// repository's client and with note as its holder (LeaseTaken); code that does not
// look works on, as after any loss. Its token is stale as soon as the key is granted
// again. The row stays, expired and with the note, until then or until
// DeleteExpired, so that who looks at the table sees what happened.
//
// note says who did it and why, at most 200 bytes. It returns false if the lease that was
// seen stands no more.
func (r *DefaultLockRepository) ForceRelease(ctx context.Context, seen LockInfo, note string) (released bool, err error) {
	if strings.TrimSpace(note) == "" || len(note) > maxHolder || strings.ContainsRune(note, 0) {
		return false, invalid("note %s: want 1 to %d bytes that say who releases the lock and why", quote(note), maxHolder)
	}
	if err := errors.Join(r.ready(), CheckKey(seen.Key)); err != nil {
		return false, err
	}
	v := r.values(Lease{Key: seen.Key, Attempt: NewAttempt()})
	v["seen_client"], v["seen_attempt"] = seen.ClientID, seen.attempt
	v["holder"] = cleanName(note) + " [" + r.config.clientID + "]"
	return r.end(ctx, r.forceRelease, v)
}

// ForceRenew keeps a lease that stands, whoever's, for at least ttl from now, so that
// nobody else gets the key meanwhile. Its holder is not told, and trusts in it no
// longer than before. It returns false if nobody holds the key.
func (r *DefaultLockRepository) ForceRenew(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if err := errors.Join(r.ready(), CheckKey(key), checkTTL(ttl)); err != nil {
		return false, err
	}
	v := r.values(Lease{Key: key})
	v["ttl"] = roundUp(ttl)
	if prolonged, err := r.end(ctx, r.forceRenew, v); prolonged || err != nil {
		return prolonged, err
	}
	info, found, err := r.Get(ctx, key) // it may have lasted longer already
	return found && info.Held(), err
}

// Regions lists the regions that have rows in the table.
func (r *DefaultLockRepository) Regions(ctx context.Context) ([]string, error) {
	if err := r.ready(); err != nil {
		return nil, err
	}
	var regions []string
	var region string
	_, err := r.regions.each(ctx, r.db, values{}, func() { regions = append(regions, region) }, &region)
	if err != nil {
		return nil, r.fail(r.regions, err)
	}
	return regions, nil
}
