package schema

import (
	"fmt"
	"slices"
	"strings"
)

// The types of MySQL and MariaDB, and the statements that mend what does not
// fit.

// widen names the type only if it is not BIGINT, as only MariaDB 11.5 and newer
// have others, and know the clause.
func (d mysql) widen(s *sequence) string {
	if s.bits < 64 {
		return "AS BIGINT NO MAXVALUE"
	}
	return "NO MAXVALUE"
}

func (mysql) noCycle() string { return "NOCYCLE" }

func (d mysql) typeOf(w wanted) string {
	const ascii = " CHARACTER SET ascii COLLATE ascii_bin"
	switch w.name {
	case lockKey, clientID:
		return "CHAR(36)" + ascii
	case region:
		return "VARCHAR(100)" + ascii
	}
	switch w.kind {
	case moment:
		return "DATETIME(6)"
	case integer:
		return "BIGINT"
	}
	collation := "utf8mb4_bin"
	if w.bytes {
		collation = d.bytewise()
	}
	return fmt.Sprintf("VARCHAR(%d) CHARACTER SET utf8mb4 COLLATE %s", w.size, collation)
}

// full is a column's type with its nullability, which MODIFY needs anew.
func (d mysql) full(w wanted) string {
	if w.ours || w.name == clientID {
		return d.typeOf(w)
	}
	if w.counter {
		return d.typeOf(w) + " NOT NULL AUTO_INCREMENT"
	}
	return d.typeOf(w) + " NOT NULL"
}

func (d mysql) add(t *table, w wanted) string {
	if w.kind != moment {
		return t.alter("ADD COLUMN " + w.name + " " + d.typeOf(w))
	}
	value := "UTC_TIMESTAMP(6)"
	if w.name == expiredAfter {
		value = createdDate + " + INTERVAL 10 SECOND"
	}
	return strings.Join([]string{
		t.alter("ADD COLUMN " + w.name + " " + d.typeOf(w) + " NULL"),
		"UPDATE " + t.name.sql + " SET " + w.name + " = " + value + ";",
		t.alter("MODIFY " + w.name + " " + d.full(w)),
	}, "\n")
}

// retype changes a TIMESTAMP column in the session's time zone, which is right
// if the writers' sessions had the same one: their UTC texts come back.
func (d mysql) retype(t *table, w wanted, have *column) string {
	if w.kind == moment && have.kind != moment && !strings.HasPrefix(strings.ToLower(have.typ), "timestamp") {
		return recreate // nobody knows what a number or a text means as a time
	}
	return t.alter("MODIFY " + w.name + " " + d.full(w))
}

func (d mysql) forbidNull(t *table, w wanted) string {
	return fillNull(t, w) + "\n" +
		t.alter("MODIFY "+w.name+" "+d.full(w))
}

// allowNull repeats the column's own type, since MODIFY forgets what it does
// not name.
func (d mysql) allowNull(t *table, have *column) string {
	typ := have.typ
	if have.charset != "" {
		typ += " CHARACTER SET " + have.charset + " COLLATE " + have.collation
	}
	return t.alter("MODIFY " + have.ident + " " + typ + " NULL")
}

func (d mysql) primaryKey(t *table, old *index) string {
	what := "ADD PRIMARY KEY (" + strings.Join(t.key, ", ") + ")"
	if old != nil {
		what = "DROP PRIMARY KEY, " + what
		for _, c := range t.columns {
			if c.counter { // must stay the first column of some key
				what = "ADD KEY (" + c.ident + "), " + what
			}
		}
	}
	if slices.ContainsFunc(t.layout, func(w wanted) bool { return w.counter }) {
		// Without the key there may be many rows of one lock. All may go: the
		// counter is the table's.
		return "DELETE FROM " + t.name.sql + ";\n" + t.alter(what)
	}
	return t.alter(what)
}

func (d mysql) dropIndex(t *table, ix *index) string {
	return t.alter("DROP INDEX " + ix.ident)
}

// count makes a column an AUTO_INCREMENT. It must be the first of some index,
// and a primary key may go in a later fix.
func (d mysql) count(t *table, w wanted) string {
	what := "MODIFY " + w.name + " " + d.full(w)
	indexed := false
	for i := range t.indexes {
		ix := &t.indexes[i]
		indexed = indexed || !ix.primary && ix.columns[0] == w.name
	}
	if !indexed {
		what = "ADD KEY (" + w.name + "), " + what
	}
	for i := range t.columns {
		if t.columns[i].counter {
			return recreate // a table has one at most
		}
	}
	return t.alter(what)
}
