package check

import (
	"bufio"
	"cmp"
	"encoding/json"
	"math"
	"os"
	"slices"

	"github.com/intlock/intlock/repository"
)

// Kind says what a record is about.
type Kind string

const (
	Client  Kind = "client"  // the first one: Key is the worker's client id
	Lease   Kind = "lease"   // the database confirmed a lease, with Attempt and Token
	Asked   Kind = "asked"   // the database was asked for a lease, and did not say
	Refused Kind = "refused" // the database said that Holder had the lock
	Deleted Kind = "deleted" // the database confirmed that it deleted a lease
	Try     Kind = "try"     // a call begins: should its end not be recorded, nothing is known of it
	Grant   Kind = "grant"   // it was granted, with Token
	Nothing Kind = "nothing" // it came back without the lock, for whatever reason
	Held    Kind = "held"    // at Call the holder asked, and then was told that it held the lock
	Unlock  Kind = "unlock"  // at Call it asked and held the lock, then began to give it back
	Free    Kind = "free"    // it was given back
	Lost    Kind = "lost"    // it was told that it had lost it, or that nothing is known
)

// Record is a line of a worker's log. Times are nanoseconds of the machine's
// monotonic clock, which all processes share. The records of one lock call have one ID.
type Record struct {
	ID      int64 `json:",omitempty"`
	Kind    Kind
	Key     string `json:",omitempty"`
	Holder  string `json:",omitempty"`
	Attempt int64  `json:",omitempty"`
	Token   int64  `json:",omitempty"`
	Call    int64  `json:",omitempty"` // before
	Return  int64  `json:",omitempty"` // after
}

// Forever is when something has returned that never did.
const Forever = math.MaxInt64

// Attempt is a lock call and what came of it.
type Attempt struct {
	Client       string
	Key          string
	Call, Return int64 // of the lock call; Return is Forever if that is not known
	Outcome      Kind  // Grant, Nothing, or Try if that is not known
	Token        int64
	Believed     int64 // the latest time at which the holder believed in it
	End          Kind  // Free, Lost, or Try if nothing is known of the end
	EndCall      int64 // of the unlock; 0 if there was none
	EndReturn    int64
}

// lease is the number of the lease in the database: goroutines of a process that hand
// one on to each other have tokens from one step.
func (a *Attempt) lease() int64 { return a.Token / repository.TokenStep }

// History is what all workers did.
type History struct {
	Attempts []*Attempt
	// Leases are those that the database has confirmed.
	Leases map[LeaseID]*Row
	// Asked says since when a lease has been asked for whose first answer was lost.
	Asked map[LeaseID]int64
	// Refusals are its answers that somebody has the lock.
	Refusals []Record
}

// Row is a lease in the database, as its client was told.
type Row struct {
	Token                    int64
	Call, Return             int64
	DeleteCall, DeleteReturn int64 // 0 unless its deletion was confirmed
}

// LeaseID names a lease as its row does.
type LeaseID struct {
	Key, Client string
	Attempt     int64
}

// Read adds a worker's log. A last line that was cut off by a kill is left out.
func (h *History) Read(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if h.Leases == nil {
		h.Leases, h.Asked = map[LeaseID]*Row{}, map[LeaseID]int64{}
	}
	client := ""
	open := map[int64]*Attempt{}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		var r Record
		if json.Unmarshal(scan.Bytes(), &r) != nil {
			continue
		}
		switch r.Kind {
		case Client:
			client = r.Key
			continue
		case Lease:
			id := LeaseID{r.Key, client, r.Attempt}
			if since, ok := h.Asked[id]; ok {
				r.Call = since
			}
			h.Leases[id] = &Row{Token: r.Token, Call: r.Call, Return: r.Return}
			continue
		case Asked:
			id := LeaseID{r.Key, client, r.Attempt}
			if _, ok := h.Asked[id]; !ok {
				h.Asked[id] = r.Call
			}
			continue
		case Deleted:
			if row := h.Leases[LeaseID{r.Key, client, r.Attempt}]; row != nil {
				row.DeleteCall, row.DeleteReturn = r.Call, r.Return
			}
			continue
		case Refused:
			h.Refusals = append(h.Refusals, r)
			continue
		case Try:
			a := &Attempt{Client: client, Key: r.Key, Call: r.Call, Return: Forever, Outcome: Try, End: Try, EndReturn: Forever}
			open[r.ID] = a
			h.Attempts = append(h.Attempts, a)
			continue
		}
		a := open[r.ID]
		switch r.Kind {
		case Grant:
			a.Outcome, a.Return, a.Token, a.Believed = Grant, r.Return, r.Token, r.Return
		case Nothing:
			a.Outcome, a.Return = Nothing, r.Return
		case Held:
			a.Believed = max(a.Believed, r.Call)
		case Unlock:
			a.EndCall, a.Believed = r.Call, max(a.Believed, r.Call)
		case Free, Lost:
			a.End, a.EndReturn = r.Kind, r.Return
		}
	}
	return scan.Err()
}

// byKey are the attempts of each key, in the order of their calls.
func (h *History) byKey() map[string][]*Attempt {
	keys := map[string][]*Attempt{}
	for _, a := range h.Attempts {
		keys[a.Key] = append(keys[a.Key], a)
	}
	for _, attempts := range keys {
		slices.SortFunc(attempts, func(a, b *Attempt) int { return cmp.Compare(a.Call, b.Call) })
	}
	return keys
}

// grants are those of attempts that were granted.
func grants(attempts []*Attempt) []*Attempt {
	return slices.DeleteFunc(slices.Clone(attempts), func(a *Attempt) bool { return a.Outcome != Grant })
}
