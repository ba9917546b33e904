package repository

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/intlock/intlock/internal/vendor"
)

// What a statement that does it all at once says of a request.
const (
	answerRefused = iota
	answerGranted
	answerAlone
	answerRest // how many of those that are not named were granted, or deleted
)

// takeAtOnce runs the one statement that looks, takes and draws. It answers with
// what became of a request, its key, and then what answerRow reads. A request
// that is missing in the answer lost a race for its key.
func takeAtOnce(ctx context.Context, r *DefaultLockRepository, b *batchOf[Outcome]) error {
	s := r.many.acquire
	var state, number int64
	var key, clientID, holder sql.RawBytes
	rest := int64(-1)
	sent, err := s.each(ctx, r.db, r.listValues(b.items), func() {
		if state == answerRest {
			rest = number
			return
		}
		it, a := b.find(key)
		if it != nil {
			it.done = true
		}
		switch {
		case a == nil:
		case state == answerAlone:
			a.Err = ErrAlone
		case state == answerGranted:
			a.Value = Outcome{Acquired: true, Token: number * TokenStep}
		default:
			a.Value = Outcome{ClientID: string(clientID), Holder: string(holder)}.held(number)
		}
	}, &state, &key, &clientID, &holder, &number)
	if err == nil && rest >= 0 {
		granted := Answer[Outcome]{Value: Outcome{Acquired: true}}
		b.rest(rest, granted, Answer[Outcome]{Err: ErrAlone}) // asked again, an attempt finds its row to be its own
	}
	b.repeated(sent)
	return r.fail(s, err)
}

// rest answers those requests that a counting statement has not named: all of them
// with good if there are as many as it counted, else nobody knows which.
func (b *batchOf[T]) rest(counted int64, good, unclear Answer[T]) {
	unnamed := int64(0)
	for i := range b.items {
		if !b.items[i].done {
			unnamed++
		}
	}
	answer := good
	if unnamed != counted {
		answer = unclear
	}
	for i := range b.items {
		if it := &b.items[i]; !it.done {
			b.answers[it.at] = answer
		}
	}
}

// repeated marks the answers of a statement that the driver sent twice.
func (b *batchOf[T]) repeated(sent *sendCount) {
	answers, ok := any(b.answers).([]Answer[Outcome])
	if !ok || !sent.again() {
		return
	}
	for _, it := range b.items {
		answers[it.at].Value.Repeated = true
	}
}

// foundRow is what a look says of the row of a key, or an acquire of the row
// that it leaves.
type foundRow struct {
	key, clientID, holder sql.RawBytes
	attempt, left, number int64
}

const foundColumns = `l.LOCK_KEY, COALESCE(l.CLIENT_ID, ''), COALESCE(l.ATTEMPT, 0), COALESCE(l.HOLDER, ''), {left}, `

// lookManyText reads the rows of a list, which the join from starts with.
func lookManyText(from string) string {
	return "SELECT " + foundColumns + "0\n" + from + "\nWHERE l.LOCK_KEY = r.want_key AND l.REGION = :region"
}

func (f *foundRow) outcome() Outcome {
	return Outcome{ClientID: string(f.clientID), Holder: string(f.holder)}.held(f.left)
}

// found runs a statement that answers with foundRows, and calls row for each
// that b has asked for. mine says that it is the request's own.
func found[T any](ctx context.Context, r *DefaultLockRepository, s *statement, v values, b *batchOf[T], row func(f *foundRow, mine bool, it *item, a *Answer[T])) (*sendCount, error) {
	var f foundRow
	return s.each(ctx, r.db, v, func() {
		it, a := b.find(bytes.TrimRight(f.key, " "))
		if it == nil {
			return
		}
		mine := string(bytes.TrimRight(f.clientID, " ")) == r.config.clientID && f.attempt == it.attempt
		row(&f, mine, it, a)
	}, &f.key, &f.clientID, &f.attempt, &f.holder, &f.left, &f.number)
}

// takeAfterLook reads first, which locks nothing and waits for nothing, so that
// only those keys are written that are likely to be had.
func takeAfterLook(ctx context.Context, r *DefaultLockRepository, b *batchOf[Outcome]) error {
	v := r.listValues(b.items)
	if _, err := found(ctx, r, r.many.look, v, b, func(f *foundRow, mine bool, it *item, a *Answer[Outcome]) {
		switch {
		case !mine && f.left >= 0:
			a.Value, it.done = f.outcome(), true
		case r.dialect.many.alone:
			a.Err, it.done = ErrAlone, true
		}
	}); err != nil {
		return r.fail(r.many.look, err)
	}
	if b.drop() {
		v = r.listValues(b.items)
	}
	if len(b.items) == 0 {
		return nil
	}
	if r.many.result == nil {
		return r.takeAndRead(ctx, v, b)
	}
	return r.takeThenRead(ctx, v, b)
}

// takeAndRead is for an acquire that answers with the rows.
func (r *DefaultLockRepository) takeAndRead(ctx context.Context, v values, b *batchOf[Outcome]) error {
	s := r.many.acquire
	sent, err := found(ctx, r, s, v, b, func(f *foundRow, mine bool, _ *item, a *Answer[Outcome]) {
		a.Value = f.outcome()
		if mine {
			a.Value = Outcome{Acquired: true, Token: f.number * TokenStep}
		}
	})
	if err != nil {
		return r.fail(s, err)
	}
	if r.many.draw != nil {
		if err := r.dialect.many.drawn(ctx, r, v, b); err != nil {
			return err
		}
	}
	b.repeated(sent)
	return nil
}

// takeThenRead is for an acquire that does not answer (MySQL): what became of
// it is read, and who has a row that is still his own has the lease.
func (r *DefaultLockRepository) takeThenRead(ctx context.Context, v values, b *batchOf[Outcome]) error {
	s := r.many.acquire
	_, sent, err := s.exec(ctx, r.db, v)
	if err != nil {
		return r.fail(s, err)
	}
	if r.many.draw != nil {
		if err := r.dialect.many.drawn(ctx, r, v, b); err != nil {
			return err
		}
	}
	noToken := false
	_, err = found(ctx, r, r.many.result, v, b, func(f *foundRow, mine bool, _ *item, a *Answer[Outcome]) {
		switch {
		case mine && f.left >= 0:
			noToken = noToken || r.many.draw != nil && f.number <= 0
			a.Value = Outcome{Acquired: true, Token: f.number * TokenStep}
		case mine:
			a.Err = r.wrap(s.op, errLeaseGone)
		default:
			a.Value = f.outcome()
		}
	})
	if err != nil {
		return r.fail(r.many.result, &sentError{runs: 2, error: err})
	}
	if noToken {
		return r.undrawn(ctx, v, errNoToken(r.config.prefix))
	}
	b.repeated(sent)
	return nil
}

// undrawn is the error of a batch that took its rows and got no tokens.
func (r *DefaultLockRepository) undrawn(ctx context.Context, v values, err error) error {
	err = r.fail(r.many.draw, &sentError{runs: 2, error: err})
	if !errors.Is(err, ErrTransient) {
		_, _, _ = r.many.remove.exec(ctx, r.db, v) // a failure for good leaves no lock behind
	}
	return err
}

// drawnBefore draws the tokens that the look afterwards reads.
func drawnBefore(ctx context.Context, r *DefaultLockRepository, v values, _ *batchOf[Outcome]) error {
	if _, _, err := r.many.draw.exec(ctx, r.db, v); err != nil {
		return r.undrawn(ctx, v, err)
	}
	return nil
}

// drawnInAnyOrder draws a number for each lease that stands. If those are not
// all that were granted, nobody knows whose they are, and each asks again.
func drawnInAnyOrder(ctx context.Context, r *DefaultLockRepository, _ values, b *batchOf[Outcome]) error {
	var granted []item
	for _, it := range b.items {
		if b.answers[it.at].Value.Acquired {
			granted = append(granted, it)
		}
	}
	if len(granted) == 0 {
		return nil
	}
	v := r.listValues(granted)
	var number int64
	var numbers []int64
	if _, err := r.many.draw.each(ctx, r.db, v, func() { numbers = append(numbers, number) }, &number); err != nil {
		return r.undrawn(ctx, v, err)
	}
	for i, it := range granted {
		a := &b.answers[it.at]
		if len(numbers) == len(granted) {
			a.Value.Token = numbers[i] * TokenStep
		} else {
			*a = Answer[Outcome]{Err: r.wrap(r.many.draw.op, errLeaseGone)}
		}
	}
	return nil
}

func errNoToken(prefix string) error {
	return fmt.Errorf("%s gave no token: its column TOKEN needs AUTO_INCREMENT, see schema.Check", vendor.TokenSource(prefix))
}

// giveBackAtOnce runs the one statement that deletes. It answers with 1 and the
// key for a row that it deleted; others are not this lease's.
func giveBackAtOnce(ctx context.Context, r *DefaultLockRepository, b *batchOf[bool]) error {
	s := r.many.remove
	var deleted bool
	var key sql.RawBytes
	sent, err := s.each(ctx, r.db, r.listValues(b.items), func() {
		if it, a := b.find(key); it != nil {
			*a = Answer[bool]{Value: deleted}
		}
	}, &deleted, &key)
	if err != nil {
		return r.fail(s, err)
	}
	r.unsure(b, sent)
	return nil
}

// giveBackCounted is for a statement that names those which it did not delete, and
// counts the others.
func giveBackCounted(ctx context.Context, r *DefaultLockRepository, b *batchOf[bool]) error {
	s := r.many.remove
	var state, number int64
	var key sql.RawBytes
	rest := int64(0)
	sent, err := s.each(ctx, r.db, r.listValues(b.items), func() {
		if state == answerRest {
			rest = number
			return
		}
		if it, a := b.find(key); it != nil {
			it.done = true
			if state == answerAlone {
				a.Err = ErrAlone
			}
		}
	}, &state, &key, &number)
	if err != nil {
		return r.fail(s, err)
	}
	b.rest(rest, Answer[bool]{Value: true}, Answer[bool]{Err: r.wrap(s.op, errUnclear)})
	r.unsure(b, sent)
	return nil
}

// unsure: the second run of a statement finds nothing where the first one, whose
// reply was lost, did the work.
func (r *DefaultLockRepository) unsure(b *batchOf[bool], sent *sendCount) {
	for _, it := range b.items {
		if a := &b.answers[it.at]; sent.again() && !a.Value {
			a.Err = r.wrap(r.many.remove.op, errSentAgain)
		}
	}
}

// errUnclear: rows were there, and are not any more, but not all of them were
// deleted by this request.
var errUnclear = errors.New("leases ended while they were given back, and it is unknown which")

// giveBackAfterLook knows from a look which rows are there, so that the number
// of deleted ones tells the rest, where a statement cannot say which.
func giveBackAfterLook(ctx context.Context, r *DefaultLockRepository, b *batchOf[bool]) error {
	v := r.listValues(b.items)
	for i := range b.items {
		b.items[i].done, b.answers[b.items[i].at].Err = true, ErrAlone
	}
	_, err := found(ctx, r, r.many.look, v, b, func(_ *foundRow, mine bool, it *item, _ *Answer[bool]) { it.done = !mine })
	if err != nil {
		return r.fail(r.many.look, err)
	}
	if b.drop() {
		v = r.listValues(b.items)
	}
	if len(b.items) == 0 {
		return nil
	}
	result, sent, err := r.many.remove.exec(ctx, r.db, v)
	if err != nil {
		return r.fail(r.many.remove, err)
	}
	deleted, err := result.RowsAffected()
	if err != nil {
		return r.wrap(r.many.remove.op, &sentError{runs: 2, error: err})
	}
	if int(deleted) < len(b.items) { // some are locked: those are still there
		_, err := found(ctx, r, r.many.look, v, b, func(_ *foundRow, mine bool, it *item, _ *Answer[bool]) { it.done = mine })
		if err != nil {
			return r.fail(r.many.look, &sentError{runs: 2, error: err})
		}
		b.drop()
	}
	for _, it := range b.items {
		a := &b.answers[it.at]
		*a = Answer[bool]{Value: true}
		if int(deleted) != len(b.items) {
			*a = Answer[bool]{Err: r.wrap(r.many.remove.op, errUnclear)}
		}
	}
	r.unsure(b, sent)
	return nil
}
