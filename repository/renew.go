package repository

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// batchSizes are the numbers of leases that a statement is prepared for; one
// for fewer is filled up with the last lease. Few sizes, so that each is
// prepared once per connection, and none so large that its locks or its
// packet would be noticed.
var batchSizes = [...]int{1, 16, 256}

// perSize is one statement in each of the batchSizes.
type perSize [len(batchSizes)]*statement

// fit returns the statement for n leases, and how many it takes.
func (p perSize) fit(n int) (*statement, int) {
	for i, size := range batchSizes {
		if n <= size {
			return p[i], n
		}
	}
	last := len(batchSizes) - 1
	return p[last], batchSizes[last]
}

// compileBatch compiles text for every size. {keys} and {attempts} stand for
// the lists, {size} for their length.
func (r *DefaultLockRepository) compileBatch(op, text string) (perSize, error) {
	var all perSize
	var errs []error
	for i, size := range batchSizes {
		lists := strings.NewReplacer("{keys}", r.dialect.list("lock_key", size), "{attempts}", r.dialect.list("attempt", size),
			"{size}", fmt.Sprint(size))
		s, err := newStatement(op, lists.Replace(r.dialect.fill(text, r.config)), r.dialect.bindType, size)
		all[i] = s
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// list is n parameters of one kind: :lock_key_0, :lock_key_1, ...
func (d dialect) list(name string, n int) string {
	typed := ":" + name
	if t, ok := d.params[name]; ok {
		typed = t
	}
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Replace(typed, ":"+name, fmt.Sprintf(":%s_%d", name, i), 1)
	}
	return strings.Join(all, ", ")
}

// setLeases fills the lists of a statement for size leases.
func (v values) setLeases(leases []Lease, size int) {
	for i := range size {
		lease := leases[min(i, len(leases)-1)]
		v[fmt.Sprintf("lock_key_%d", i)], v[fmt.Sprintf("attempt_%d", i)] = lease.Key, lease.Attempt
	}
}

// Renew implements LockRepository. It takes up to 256 leases at once, and with
// a custom renew query one.
func (r *DefaultLockRepository) Renew(ctx context.Context, leases []Lease, ttl time.Duration) ([]LeaseStatus, error) {
	if err := errors.Join(r.ready(), checkLeases(leases), checkTTL(ttl)); err != nil || len(leases) == 0 {
		return nil, err
	}
	start := time.Now()
	var all bool
	var err error
	if r.config.renewQuery != "" {
		leases = leases[:1]
		all, err = r.renewByCustomQuery(ctx, leases[0], ttl)
	} else {
		leases, all, err = r.renewBatch(ctx, leases, ttl)
	}
	if err != nil {
		return nil, err
	}
	answers := make([]LeaseStatus, len(leases))
	if !all {
		return answers, r.look(ctx, leases, ttl, start, answers)
	}
	for i := range answers {
		answers[i] = LeaseStatus{State: LeaseStands, Remaining: ttl}
	}
	return answers, nil
}

func (r *DefaultLockRepository) renewByCustomQuery(ctx context.Context, lease Lease, ttl time.Duration) (bool, error) {
	v := r.values(lease)
	v["ttl"], v["holder"], v["lock_name"] = roundUp(ttl), r.config.holderText(), ""
	result, _, err := r.renew.exec(ctx, r.db, v)
	if err != nil {
		return false, r.fail(r.renew, err)
	}
	ok, err := r.dialect.changed(result)
	return ok, r.wrap(r.renew.op, err)
}

// renewBatch renews what it can of leases, and reports how many it asked about
// and whether all of those were renewed. An UPDATE that changes nothing, as two
// of one microsecond do, is not counted on every vendor; then a look tells.
func (r *DefaultLockRepository) renewBatch(ctx context.Context, leases []Lease, ttl time.Duration) ([]Lease, bool, error) {
	s, n := r.renewMany.fit(len(leases))
	leases = leases[:n]
	v := r.values(Lease{})
	v["ttl"] = roundUp(ttl)
	v.setLeases(leases, s.size)
	result, _, err := s.exec(ctx, r.db, v)
	if err != nil {
		return nil, false, r.fail(s, err)
	}
	changed, err := result.RowsAffected()
	return leases, changed >= int64(n), r.wrap(s.op, err)
}

// look reads what has become of leases into answers, after an attempt at start
// to renew them for ttl that did not reach all of them.
func (r *DefaultLockRepository) look(ctx context.Context, leases []Lease, ttl time.Duration, start time.Time, answers []LeaseStatus) error {
	var rows []struct {
		Key      string `db:"lock_key"`
		ClientID string `db:"client_id"`
		Attempt  int64  `db:"attempt"`
		Holder   string `db:"holder"`
		Left     int64  `db:"remaining"`
	}
	s, _ := r.find.fit(len(leases))
	v := r.values(Lease{})
	v.setLeases(leases, s.size)
	asked := time.Since(start)
	if err := s.scanAll(ctx, r.db, v, &rows); err != nil {
		return r.fail(s, err)
	}
	answered := time.Since(start)
	at := make(map[string]int, len(leases))
	for i, lease := range leases {
		at[lease.Key] = i
		answers[i].State = LeaseDeleted
	}
	for _, row := range rows {
		i, ok := at[strings.TrimRight(row.Key, " ")]
		if !ok {
			continue
		}
		clientID := strings.TrimRight(row.ClientID, " ")
		left := time.Duration(row.Left) * time.Microsecond
		switch {
		case clientID != r.config.clientID || row.Attempt != leases[i].Attempt:
			answers[i] = LeaseStatus{State: LeaseTaken, ClientID: clientID, Holder: holderOf(row.Holder, clientID)}
		case left < 0:
			answers[i].State = LeaseExpired
		default:
			// What is left was true when the look was executed, which is not
			// before it was sent. Whether the renewal worked shows in it, but
			// only to within the time the two statements took; so State is a
			// hint when to ask again, and Remaining is what can be relied on.
			answers[i] = LeaseStatus{State: LeaseBusy, Remaining: left + asked}
			if left+answered >= ttl {
				answers[i].State = LeaseStands
			}
		}
	}
	return nil
}
