package schema

import (
	"fmt"
	"slices"
	"strings"
)

// wanted is a column that a table must have.
type wanted struct {
	name string
	kind kind
	size int
	// ours: Spring does not know the column, and its INSERT does not name it.
	ours bool
}

// standard is the layout; a dialect may see a type differently.
func standard() []wanted {
	return []wanted{
		{name: lockKey, kind: text, size: 36},
		{name: region, kind: text, size: 100},
		{name: clientID, kind: text, size: 36},
		{name: createdDate, kind: moment, size: 6},
		{name: expiredAfter, kind: moment, size: 6},
		{name: attempt, kind: integer, size: 64, ours: true},
		{name: holder, kind: text, size: 255, ours: true},
		{name: lockName, kind: text, size: 255, ours: true},
	}
}

// recreate is a dialect's answer when no ALTER TABLE mends a finding. Locks
// are short-lived, so a new table costs little more than the stop that
// altering the old one needs anyway.
const recreate = "recreate"

// compare lists what is wrong with a table, in the order in which the fixes
// must be run.
//
// It does not look at the collation of the keys: Spring's script for MySQL
// leaves it to the database, whose default ignores case, and such a table
// works.
func compare(t *table, d dialect) []Problem {
	if problems := notOurs(t, d); len(problems) > 0 {
		return problems
	}
	problems := d.quirks(t)
	layout := d.layout()
	for _, w := range layout {
		problems = append(problems, compareColumn(t, d, w)...)
	}
	// A column cannot allow NULL while it is part of the primary key, so the
	// strangers come last.
	problems = append(problems, keys(t, d)...)
	problems = append(problems, strangers(t, d, layout)...)

	// A new table mends everything, and nothing else may be run after it.
	if slices.ContainsFunc(problems, func(p Problem) bool { return p.Fix == recreate }) {
		for i := range problems {
			problems[i].Fix = recreation(t, d)
		}
	}
	return problems
}

// notOurs finds that something is no lock table at all. Nothing else is said
// about it then, and above all no statement that would alter it.
func notOurs(t *table, d dialect) []Problem {
	if t.notTable != "" {
		return []Problem{{Found: t.notTable, Want: "a table; drop or rename it, or choose another prefix"}}
	}
	var problems []Problem
	for _, w := range d.layout() {
		if (w.name == lockKey || w.name == region) && t.column(w.name) == nil {
			problems = append(problems, Problem{
				Column: w.name,
				Found:  "no such column",
				Want:   d.typeOf(w) + "; this is not a lock table, choose another prefix",
			})
		}
	}
	return problems
}

func recreation(t *table, d dialect) string {
	text := strings.Join(statements(render(d.vendor(), t.name.prefix, creates)), ";\n")
	return "DROP TABLE " + t.name.sql + ";\n" + text + ";"
}

func compareColumn(t *table, d dialect, w wanted) []Problem {
	have := t.column(w.name)
	if have == nil {
		return []Problem{absent(t, d, w)}
	}
	var problems []Problem
	add := func(found, want, fix string) {
		problems = append(problems, Problem{Column: w.name, Found: found, Want: want, Fix: fix})
	}
	switch {
	case have.kind != w.kind:
		add(have.typ, d.typeOf(w)+reason(w), d.retype(t, w, have))
	case have.size < w.size:
		add(have.typ, "at least "+d.typeOf(w), d.retype(t, w, have))
	}
	switch {
	case have.generated:
		add("a generated column", "one that can be written", recreate)
	case w.ours && !have.nullable && !have.filled:
		add("NOT NULL without a default", "NULL allowed: a Java service's INSERT does not name the column, and Spring takes its failure for a lock held by another",
			d.allowNull(t, have))
	case w.name == expiredAfter && have.nullable:
		add("NULL allowed", "NOT NULL: a lock without an end would never expire", d.forbidNull(t, w))
	}
	return problems
}

func reason(w wanted) string {
	switch {
	case w.kind == moment:
		return ", UTC without a zone"
	case w.name == createdDate || w.name == expiredAfter:
		return ", Unix milliseconds"
	}
	return ""
}

func absent(t *table, d dialect, w wanted) Problem {
	p := Problem{Column: w.name, Found: "no such column", Want: d.typeOf(w) + reason(w)}
	if w.name == expiredAfter && t.column(createdDate) != nil {
		p.Found = "no such column: the layout of Spring Integration 6.5 and older, where a lock ends its time to live after CREATED_DATE"
		p.Want += ", as in Spring Integration 7." +
			" If Java services of 6.5 or older use the table, leave it and use repository.WithSpring6Layout." +
			" Otherwise stop all its users and migrate it (locks then end 10 s, Spring's default, after CREATED_DATE)"
	}
	p.Fix = d.add(t, w)
	return p
}

// strangers finds columns that make our INSERT fail.
func strangers(t *table, d dialect, layout []wanted) []Problem {
	var problems []Problem
	for i := range t.columns {
		have := &t.columns[i]
		known := slices.ContainsFunc(layout, func(w wanted) bool { return w.name == have.name })
		if known || have.nullable || have.filled {
			continue
		}
		p := Problem{
			Column: have.name,
			Found:  have.typ + " NOT NULL without a default",
			Want:   "NULL allowed or a default: no INSERT of ours names the column",
			Fix:    d.allowNull(t, have),
		}
		problems = append(problems, p)
	}
	return problems
}

// keys looks at the primary key and at other unique indexes.
func keys(t *table, d dialect) []Problem {
	const want = "PRIMARY KEY (LOCK_KEY, REGION): it is what lets only one owner in"
	var problems []Problem
	switch pk := t.primary(); {
	case pk == nil:
		problems = append(problems, Problem{Found: "no primary key", Want: want, Fix: d.primaryKey(t, nil)})
	case !(len(pk.columns) == 2 && coversKey(pk)):
		problems = append(problems, Problem{Found: "PRIMARY KEY (" + strings.Join(pk.columns, ", ") + ")", Want: want, Fix: d.primaryKey(t, pk)})
	case pk.deferrable:
		problems = append(problems, Problem{Found: "a DEFERRABLE primary key", Want: want + ", and ON CONFLICT needs one that is checked at once", Fix: d.primaryKey(t, pk)})
	}
	for i := range t.indexes {
		ix := &t.indexes[i]
		// One on both key columns and more never fires before the primary key.
		if ix.primary || !ix.unique || coversKey(ix) {
			continue
		}
		problems = append(problems, Problem{
			Found: fmt.Sprintf("the unique index %s on (%s)", ix.ident, strings.Join(ix.columns, ", ")),
			Want:  "no other unique index: it would refuse, or mix up, locks that have nothing to do with each other",
			Fix:   d.dropIndex(t, ix),
		})
	}
	return problems
}

func coversKey(ix *index) bool {
	return slices.Contains(ix.columns, lockKey) && slices.Contains(ix.columns, region)
}
