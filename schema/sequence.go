package schema

import (
	"fmt"
	"math"
)

// sequence is what was found of one, in addition to what a table has.
type sequence struct {
	typ        string // in the server's words
	bits       int
	start, max int64
	increment  int64
	cache      int64 // how many numbers are handed out in advance; 0 and 1 are none
	cycle      bool
}

// enough is what a sequence's end must lie above: MariaDB's ends one before the
// last BIGINT, and somebody may have set another that nobody will live to see.
const enough = math.MaxInt64 / 2

// compareSequence lists what is wrong with a sequence, one ALTER SEQUENCE for
// each finding. None of them makes it hand out a number twice.
func compareSequence(t *table, d dialect) []Problem {
	var problems []Problem
	s := &t.sequence
	add := func(found, want, fix string) {
		problems = append(problems, Problem{Found: found, Want: want, Fix: "ALTER SEQUENCE " + t.name.sql + " " + fix + ";"})
	}
	switch {
	case s.increment < 0:
		// Where it fell from, the next number must lie above.
		next := max(s.start, 0) + 1
		if s.cycle {
			next = max(s.max, 0) + 1
		}
		add(fmt.Sprintf("INCREMENT BY %d", s.increment), "INCREMENT BY 1: tokens must rise",
			fmt.Sprintf("INCREMENT BY 1 MINVALUE 1 NO MAXVALUE START WITH %[1]d RESTART WITH %[1]d", next))
	case s.increment == 0:
		add("INCREMENT BY 0", "INCREMENT BY 1: each node of a Galera cluster would deal out numbers of its own, and a later grant could get the lower token",
			"INCREMENT BY 1")
	}
	switch {
	case s.bits < 64:
		add("the type "+s.typ, "BIGINT: when the numbers are used up, no lock can be granted any more", d.widen(s))
	case s.max < enough && s.increment >= 0:
		add(fmt.Sprintf("MAXVALUE %d", s.max), "one that is never reached: when the numbers are used up, no lock can be granted any more", d.widen(s))
	}
	if s.cache > 1 {
		add(fmt.Sprintf("CACHE %d", s.cache), "no cache: it hands out blocks of numbers in advance, to each session or server, and a later grant could get the lower token",
			"CACHE 1")
	}
	if s.cycle {
		add("CYCLE", "NO CYCLE: tokens must not start over", d.noCycle())
	}
	return problems
}
