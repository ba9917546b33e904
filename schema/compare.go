package schema

import (
	"fmt"
	"slices"
	"strings"
)

// recreate is a dialect's answer when no ALTER TABLE mends a finding. Locks
// are short-lived, so a new lock table costs little more than the stop that
// altering the old one needs anyway. For the other parts it is no way out.
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
	if t.is == aSequence {
		problems = append(problems, compareSequence(t, d)...)
	} else {
		for _, w := range t.layout {
			problems = append(problems, compareColumn(t, d, w)...)
		}
		// A column cannot allow NULL while it is part of the primary key, so the
		// strangers come last.
		problems = append(problems, keys(t, d)...)
		problems = append(problems, strangers(t, d)...)
	}

	if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Fix == recreate }) {
		return problems
	}
	for i := range problems {
		p := &problems[i]
		switch {
		case t.shortLived:
			// A new table mends everything, and nothing else may be run after it.
			p.Fix = recreation(t, d)
		case p.Fix == recreate:
			p.Fix = ""
			p.Want += "; replace it by hand, so that the tokens go on where they are"
		}
	}
	return problems
}

// notOurs finds that something is not what it should be at all. Nothing else
// is said about it then, and above all no statement that would alter it.
func notOurs(t *table, d dialect) []Problem {
	if t.found != t.is {
		return []Problem{{Found: t.found, Want: t.is + "; drop or rename it, or choose another prefix"}}
	}
	var problems []Problem
	for _, w := range t.layout {
		if w.sign && t.column(w.name) == nil {
			problems = append(problems, Problem{
				Column: w.name,
				Found:  "no such column",
				Want:   d.typeOf(w) + "; this is not a " + t.noun + ", choose another prefix",
			})
		}
	}
	return problems
}

func recreation(t *table, d dialect) string {
	create := statements(render(d.vendor(), t.name.in(t.home()), creates))[lockPart]
	return "DROP TABLE " + t.name.sql + ";\n" + create + ";"
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
	case w.notNull != "" && have.nullable:
		add("NULL allowed", "NOT NULL: "+w.notNull, d.forbidNull(t, w))
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
func strangers(t *table, d dialect) []Problem {
	var problems []Problem
	for i := range t.columns {
		have := &t.columns[i]
		known := slices.ContainsFunc(t.layout, func(w wanted) bool { return w.name == have.name })
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
	want := "PRIMARY KEY (" + strings.Join(t.key, ", ") + "): " + t.keyWhy
	var problems []Problem
	switch pk := t.primary(); {
	case pk == nil:
		problems = append(problems, Problem{Found: "no primary key", Want: want, Fix: d.primaryKey(t, nil)})
	case !(len(pk.columns) == len(t.key) && coversKey(t, pk)):
		problems = append(problems, Problem{Found: "PRIMARY KEY (" + strings.Join(pk.columns, ", ") + ")", Want: want, Fix: d.primaryKey(t, pk)})
	case pk.deferrable:
		problems = append(problems, Problem{Found: "a DEFERRABLE primary key", Want: want + ", and ON CONFLICT needs one that is checked at once", Fix: d.primaryKey(t, pk)})
	}
	for i := range t.indexes {
		ix := &t.indexes[i]
		// One on all key columns and more never fires before the primary key, and
		// one on a counter never at all.
		if ix.primary || !ix.unique || coversKey(t, ix) || counts(t, ix) {
			continue
		}
		problems = append(problems, Problem{
			Found: fmt.Sprintf("the unique index %s on (%s)", ix.ident, strings.Join(ix.columns, ", ")),
			Want:  "no other unique index: it would refuse, or mix up, rows that have nothing to do with each other",
			Fix:   d.dropIndex(t, ix),
		})
	}
	return problems
}

func coversKey(t *table, ix *index) bool {
	return !slices.ContainsFunc(t.key, func(name string) bool { return !slices.Contains(ix.columns, name) })
}

func counts(t *table, ix *index) bool {
	first := t.column(ix.columns[0])
	return first != nil && first.counter
}
