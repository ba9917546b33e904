package repository

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// batchSizes are the numbers of leases that a statement is prepared for; one
// for fewer is filled up with the last lease. Few sizes, so that each is
// prepared once per connection, and none so large that its locks or its
// packet would be noticed.
var batchSizes = [...]int{1, 16, 256}

// batch is a statement about a list of leases, in each of the batchSizes. The
// larger ones are compiled when they are first needed, as most programs never
// hold so many locks, and compiling takes longer than all other statements do.
type batch struct {
	compile func(size int) (*statement, error)
	sizes   [len(batchSizes)]atomic.Pointer[statement]
}

// fit returns the statement for n leases, and how many it takes.
func (b *batch) fit(n int) (*statement, int, error) {
	last := len(batchSizes) - 1
	i := 0
	for i < last && n > batchSizes[i] {
		i++
	}
	n = min(n, batchSizes[i])
	if s := b.sizes[i].Load(); s != nil {
		return s, n, nil
	}
	s, err := b.compile(batchSizes[i])
	if err == nil && !b.sizes[i].CompareAndSwap(nil, s) {
		s = b.sizes[i].Load() // somebody was faster
	}
	return s, n, err
}

// compiled lists the statements there are so far.
func (b *batch) compiled() []*statement {
	var all []*statement
	for i := range b.sizes {
		if s := b.sizes[i].Load(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// newBatch prepares text to be compiled for any size, and tries it for one
// lease. {keys} and {attempts} stand for the lists, {size} for their length.
func (r *DefaultLockRepository) newBatch(op, text string) (*batch, error) {
	d := r.dialect
	text = d.fill(text, r.config)
	b := &batch{compile: func(size int) (*statement, error) {
		lists := strings.NewReplacer("{keys}", d.list("lock_key", size), "{attempts}", d.list("attempt", size), "{size}", strconv.Itoa(size))
		return newStatement(op, lists.Replace(text), false, d.bindType, size)
	}}
	_, _, err := b.fit(1)
	return b, err
}

// list is n parameters of one kind: :lock_key_0, :lock_key_1, ...
func (d dialect) list(name string, n int) string {
	typed := ":" + name
	if t, ok := d.params[name]; ok {
		typed = t
	}
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Replace(typed, ":"+name, ":"+listed(name, i), 1)
	}
	return strings.Join(all, ", ")
}

// listed names a parameter of a list.
func listed(name string, i int) string { return name + "_" + strconv.Itoa(i) }

// setLeases fills the lists of a statement for size leases.
func (v values) setLeases(leases []Lease, size int) {
	for i := range size {
		lease := leases[min(i, len(leases)-1)]
		v[listed("lock_key", i)], v[listed("attempt", i)] = lease.Key, lease.Attempt
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
	if !all {
		return r.look(ctx, leases, ttl, start)
	}
	answers := make([]LeaseStatus, len(leases))
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
	s, n, err := r.renewMany.fit(len(leases))
	if err != nil {
		return nil, false, err
	}
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

// look reads what has become of leases, after an attempt at start to renew them
// for ttl that did not reach all of them.
func (r *DefaultLockRepository) look(ctx context.Context, leases []Lease, ttl time.Duration, start time.Time) ([]LeaseStatus, error) {
	s, _, err := r.find.fit(len(leases))
	if err != nil {
		return nil, err
	}
	v := r.values(Lease{})
	v.setLeases(leases, s.size)
	asked := time.Since(start)
	rows, err := s.rows(ctx, r.db, v)
	if err != nil {
		return nil, r.fail(s, err)
	}
	answered := time.Since(start)
	answers := make([]LeaseStatus, len(leases))
	at := make(map[string]int, len(leases))
	for i, lease := range leases {
		at[lease.Key] = i
		answers[i].State = LeaseDeleted
	}
	for _, row := range rows {
		i, ok := at[row.Key]
		if !ok {
			continue
		}
		answers[i] = r.status(row, leases[i])
		if answers[i].State == LeaseStands {
			// What is left was true when the look was executed, which is not
			// before it was sent. Whether the renewal worked shows in it, but
			// only to within the time the two statements took; so State is a
			// hint when to ask again, and Remaining is what can be relied on.
			left := answers[i].Remaining
			answers[i].Remaining = left + asked
			if left+answered < ttl {
				answers[i].State = LeaseBusy
			}
		}
	}
	return answers, nil
}

// status is what a row, read by its key, says about a lease.
func (r *DefaultLockRepository) status(row row, lease Lease) LeaseStatus {
	switch {
	case row.ClientID != r.config.clientID || row.Attempt != lease.Attempt:
		return LeaseStatus{State: LeaseTaken, ClientID: row.ClientID, Holder: row.Holder}
	case row.left() < 0:
		return LeaseStatus{State: LeaseExpired}
	}
	return LeaseStatus{State: LeaseStands, Remaining: row.left()}
}
