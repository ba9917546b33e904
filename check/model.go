package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/intlock/intlock/repository"
)

// holder is who has the lock of one key: nobody, or a client by a grant.
type holder struct {
	token  int64 // of the grant; below 0 for a lease that its client never heard of
	client string
}

// input is an operation on the lock of one key.
type input struct {
	kind Kind // Grant, Refused, Free, or Lost
	holder
}

// model is a lock with a lease. A lease that was not given back ends at some moment after
// its holder has believed in it for the last time: Lost is that moment.
var model = porcupine.Model{
	Init: func() any { return holder{} },
	Step: func(state, in, _ any) (bool, any) {
		has, op := state.(holder), in.(input)
		switch op.kind {
		case Grant:
			return has == holder{}, op.holder
		case Refused:
			return has.client == op.client, has
		}
		return has == op.holder, holder{}
	},
	DescribeOperation: func(in, _ any) string {
		op := in.(input)
		return fmt.Sprint(op.kind, " ", op.client, " ", op.token)
	},
}

// Forgotten finds grants that the database knows nothing of, and tokens that do not rise
// in the order in which it gave the leases.
func (h *History) Forgotten(given map[string][]LeaseID) (faults []string) {
	for key, attempts := range h.byKey() {
		known := map[int64]bool{}
		last := int64(0)
		for _, l := range given[key] {
			row := h.Leases[l]
			if row == nil {
				continue
			}
			token := row.Token
			if token <= last {
				faults = append(faults, fmt.Sprintf("%s: a lease with token %d was given after one with %d", key, token, last))
			}
			last = token
			known[token/repository.TokenStep] = true
		}
		for _, a := range grants(attempts) {
			if !known[a.lease()] {
				faults = append(faults, fmt.Sprintf("%s: the database has forgotten the grant with token %d to %s", key, a.Token, a.Client))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// Linearizable checks with porcupine, for each key, what the callers saw of the lock and
// what the database said of the lease: a lease outlives an unlock that hands it on. It
// returns how many operations that were. No answer within patience is a fault too.
func (h *History) Linearizable(given map[string][]LeaseID, patience time.Duration) (operations int, faults []string) {
	refusals := map[string][]Record{}
	for _, r := range h.Refusals {
		refusals[r.Key] = append(refusals[r.Key], r)
	}
	for key, attempts := range h.byKey() {
		for of, history := range map[string][]porcupine.Operation{
			"callers": callers(attempts), "database": h.database(attempts, given[key], refusals[key])} {
			operations += len(history)
			switch porcupine.CheckOperationsTimeout(model, history, patience) {
			case porcupine.Illegal:
				faults = append(faults, fmt.Sprintf("%s: the %s's history of %d operations is not linearizable%s", key, of, len(history), culprit(history)))
			case porcupine.Unknown:
				faults = append(faults, fmt.Sprintf("%s: no answer for the %s's %d operations within %v", key, of, len(history), patience))
			}
		}
	}
	slices.Sort(faults)
	return operations, faults
}

// add adds an operation. Each is a client of its own: an end at an unknown time overlaps
// all that its worker does later.
func add(history *[]porcupine.Operation, op input, call, back int64) {
	*history = append(*history, porcupine.Operation{ClientId: len(*history), Input: op, Call: call, Return: max(call, back)})
}

// callers are the operations of those who lock and unlock.
func callers(attempts []*Attempt) (history []porcupine.Operation) {
	granted := grants(attempts)
	slices.SortFunc(granted, func(a, b *Attempt) int { return cmp.Compare(a.Token, b.Token) })
	for i, a := range granted {
		who := holder{a.Token, a.Client}
		add(&history, input{Grant, who}, a.Call, a.Return)
		if a.End == Free {
			add(&history, input{Free, who}, a.EndCall, a.EndReturn)
			continue
		}
		// It ended before the next grant came back.
		until := int64(Forever)
		if i+1 < len(granted) {
			until = granted[i+1].Return
		}
		add(&history, input{Lost, who}, a.Believed, until)
	}
	return history
}

// database are the operations of the leases, in the order of given, and the refusals.
func (h *History) database(attempts []*Attempt, given []LeaseID, refusals []Record) (history []porcupine.Operation) {
	believed := map[int64]int64{} // until when somebody believed in each lease
	for _, a := range grants(attempts) {
		believed[a.lease()] = max(believed[a.lease()], a.Believed)
	}
	after := attempts[0].Call
	for i, l := range given {
		// What was given before the next one that is known of came back.
		until := int64(Forever)
		for _, next := range given[i+1:] {
			if row := h.Leases[next]; row != nil {
				until = row.Return
				break
			}
		}
		row := h.Leases[l]
		if row == nil { // nobody has heard of it: the answer was lost
			ghost := holder{-1 - int64(i), l.Client}
			add(&history, input{Grant, ghost}, after, until)
			add(&history, input{Lost, ghost}, after, until)
			continue
		}
		who, end := holder{row.Token, l.Client}, max(row.Call, believed[row.Token/repository.TokenStep])
		add(&history, input{Grant, who}, row.Call, row.Return)
		if row.DeleteReturn > 0 {
			add(&history, input{Free, who}, max(row.DeleteCall, end), row.DeleteReturn)
		} else {
			add(&history, input{Lost, who}, end, until)
		}
		after = row.Call
	}
	for _, r := range refusals {
		add(&history, input{Refused, holder{client: r.Holder}}, r.Call, r.Return)
	}
	return history
}

// culprit names the first refusal that does not fit, and what happened around it.
func culprit(history []porcupine.Operation) string {
	fits := func(some []porcupine.Operation) bool {
		return porcupine.CheckOperationsTimeout(model, some, time.Second) == porcupine.Ok
	}
	refusal := func(op porcupine.Operation) bool { return op.Input.(input).kind == Refused }
	rest := slices.DeleteFunc(slices.Clone(history), refusal)
	if !fits(rest) {
		return " even without the refusals"
	}
	for _, op := range history {
		if !refusal(op) || fits(append(slices.Clip(rest), op)) {
			continue
		}
		text := "; what does not fit is " + describe(op, op.Call) + ", among"
		slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, near := range rest {
			if near.Call < op.Return+int64(20*time.Millisecond) && near.Return > op.Call-int64(20*time.Millisecond) {
				text += "\n    " + describe(near, op.Call)
			}
		}
		return text
	}
	return ""
}

// describe tells an operation with its times since a moment.
func describe(op porcupine.Operation, since int64) string {
	until := "?"
	if op.Return != Forever {
		until = time.Duration(op.Return - since).String()
	}
	return fmt.Sprintf("%s (%v to %s)", model.DescribeOperation(op.Input, nil), time.Duration(op.Call-since), until)
}
