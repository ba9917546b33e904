package repository

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
)

// largestBatch is how many requests go into one statement: few enough that
// nobody notices its locks or its packet.
const largestBatch = 256

// batchDialect is what a vendor says of AcquireBatch and DeleteBatch. The texts
// are about a row r of a list, see newListStatement.
type batchDialect struct {
	// lists puts the list into the parameters, one text or a few, so that a
	// statement has one form for any number of requests.
	lists func(values, []item)
	// look reads the rows of the list, and locks none: see foundRow.
	look string
	// alone says that a row which is there is left to Acquire, should it not be
	// another's: a list cannot pass it if somebody's transaction has locked it.
	alone bool

	acquire, acquireToken string // the latter draws the tokens too
	draw                  string // where acquire cannot
	result, resultToken   string // a look at what became of acquire, which does not answer itself
	remove                string
	purge                 string // of those in the list, what has expired

	take     func(context.Context, *DefaultLockRepository, *batchOf[Outcome]) error
	drawn    func(context.Context, *DefaultLockRepository, values, *batchOf[Outcome]) error
	giveBack func(context.Context, *DefaultLockRepository, *batchOf[bool]) error
}

// batchStatements are those of AcquireBatch and DeleteBatch that a vendor has.
type batchStatements struct{ look, acquire, draw, result, remove, purge *statement }

func (b batchStatements) all() []*statement {
	return []*statement{b.look, b.acquire, b.draw, b.result, b.remove, b.purge}
}

// newBatchStatements compiles them. Custom queries are about one lease, so with
// them there is no batch of acquires.
func (r *DefaultLockRepository) newBatchStatements() (b batchStatements, err error) {
	d, errs := r.dialect.many, []error(nil)
	build := func(op, text string) *statement {
		if text == "" {
			return nil
		}
		s, err := r.newListStatement(op, text)
		errs = append(errs, err)
		return s
	}
	b.look, b.remove = build("look", d.look), build("delete", d.remove)
	b.purge = build("deleteExpired", d.purge)
	if r.config.customAcquire() {
		return b, errors.Join(errs...)
	}
	acquire, result := d.acquire, d.result
	if r.config.tokens {
		acquire, result = cmp.Or(d.acquireToken, acquire), cmp.Or(d.resultToken, result)
		b.draw = build("draw token", d.draw)
	}
	b.acquire, b.result = build("acquire", acquire), build("acquire", result)
	return b, errors.Join(errs...)
}

// newListStatement compiles a text about a row r of a list: what is a parameter
// elsewhere is a column of r here. The list itself comes in parameters that no
// custom query may use.
func (r *DefaultLockRepository) newListStatement(op, text string) (*statement, error) {
	d := r.dialect
	if d.mark != "" { // an answer by LAST_INSERT_ID would be about one row
		d.mark = ""
	}
	text = strings.NewReplacer(":lock_key", "r.want_key", ":attempt", "r.want_attempt", ":ttl", "r.want_ttl", ":lock_name", "r.want_name").
		Replace(d.fill(text, r.config))
	var lists []string
	for _, name := range listParameters {
		if strings.Contains(text, ":"+name) {
			lists = append(lists, name)
		}
	}
	return newStatement(op, text, false, d.bindType, 0, lists...)
}

// item is one request of a batch, or one lease.
type item struct {
	key     string
	attempt int64
	ttl     int64 // microseconds
	name    string
	at      int  // in the batch as it was asked for
	done    bool // it has its answer before the list goes out
}

// batchOf is a batch on its way: the requests that go into the statement, and
// what came of all.
type batchOf[T any] struct {
	items   []item // in the order of their keys
	answers []Answer[T]
	next    int // where find begins
}

// newBatchOf checks and sorts n requests. All processes take keys in the same
// order, so that two never wait for each other in a circle.
func newBatchOf[T any](n int, get func(int) (item, error)) *batchOf[T] {
	b := &batchOf[T]{items: make([]item, 0, n), answers: make([]Answer[T], n)}
	for i := range n {
		it, err := get(i)
		if err != nil {
			b.answers[i].Err = err
			continue
		}
		it.at = i
		b.items = append(b.items, it)
	}
	slices.SortStableFunc(b.items, func(x, y item) int { return strings.Compare(x.key, y.key) })
	for i := range b.items { // a key that occurs twice would fail the statement
		if i > 0 && b.items[i].key == b.items[i-1].key {
			b.answers[b.items[i].at].Err, b.items[i].done = ErrAlone, true
		}
	}
	b.drop()
	return b
}

// drop leaves out what has its answer.
func (b *batchOf[T]) drop() (some bool) {
	n := len(b.items)
	b.next = 0
	b.items = slices.DeleteFunc(b.items, func(it item) bool { return it.done })
	return len(b.items) < n
}

// find returns the request for key. Answers come more or less in the order of
// the list, so the search goes on where the last one ended.
func (b *batchOf[T]) find(key []byte) (*item, *Answer[T]) {
	for range b.items {
		it := &b.items[b.next]
		b.next = (b.next + 1) % len(b.items)
		if it.key == string(key) {
			return it, &b.answers[it.at]
		}
	}
	return nil, nil
}

// AcquireBatch implements BatchRepository, for up to 256 requests at once. The
// answer is ErrAlone to all of them if there is a custom insert or update query,
// and on MySQL and MariaDB to those whose row is there and is expired or their
// own. If the database refuses the statement because of one of the requests,
// the error is about all; made alone, the others are none the worse.
func (r *DefaultLockRepository) AcquireBatch(ctx context.Context, reqs []Request) ([]Answer[Outcome], error) {
	if err := r.ready(); err != nil || len(reqs) == 0 {
		return nil, err
	}
	b := newBatchOf[Outcome](min(len(reqs), largestBatch), func(i int) (item, error) {
		req := reqs[i]
		return item{key: req.Key, attempt: req.Attempt, ttl: roundUp(req.TTL), name: cleanName(req.Name)}, checkRequest(req)
	})
	if r.config.customAcquire() {
		for _, it := range b.items {
			b.answers[it.at].Err = ErrAlone
		}
		return b.answers, nil
	}
	if len(b.items) > 0 {
		if err := r.dialect.many.take(ctx, r, b); err != nil {
			return nil, err
		}
	}
	return b.answers, nil
}

// DeleteBatch implements BatchRepository, for up to 256 leases at once. The
// answer is ErrAlone for a row that somebody's transaction has locked, and on
// MySQL and MariaDB for one that a look at it did not find.
func (r *DefaultLockRepository) DeleteBatch(ctx context.Context, leases []Lease) ([]Answer[bool], error) {
	if err := r.ready(); err != nil || len(leases) == 0 {
		return nil, err
	}
	b := newBatchOf[bool](min(len(leases), largestBatch), func(i int) (item, error) {
		return item{key: leases[i].Key, attempt: leases[i].Attempt}, CheckKey(leases[i].Key)
	})
	if len(b.items) > 0 {
		if err := r.dialect.many.giveBack(ctx, r, b); err != nil {
			return nil, err
		}
	}
	return b.answers, nil
}

// listValues fills the parameters of a statement about the items.
func (r *DefaultLockRepository) listValues(items []item) values {
	v := r.values(Lease{})
	v["holder"] = r.config.holderText()
	r.dialect.many.lists(v, items)
	return v
}
