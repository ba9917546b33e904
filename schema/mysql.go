package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

// mysql serves MariaDB as well; name tells them apart.
type mysql struct{ name string }

func (d mysql) vendor() string { return d.name }
func (mysql) layout() []wanted { return standard() }

// read asks information_schema with the name exactly as the server stores it:
// on most servers INT_LOCK and int_lock are two tables, but some comparisons
// there ignore case all the same.
func (d mysql) read(ctx context.Context, db DB, p part) (*table, error) {
	t, name := &table{part: p}, p.name
	var current sql.NullString
	var folding int
	err := query(ctx, db, "SELECT DATABASE(), @@lower_case_table_names", func(rows *sql.Rows) error {
		return rows.Scan(&current, &folding)
	})
	if err != nil {
		return nil, fmt.Errorf("ask for the current database: %w", err)
	}
	database := name.schema
	if database == "" {
		if database = current.String; database == "" {
			return nil, errors.New(`no database is selected: name one in the DSN, or in the prefix as in "app.INT_"`)
		}
	}
	same := func(a, b string) bool { return a == b }
	stored := name.table
	if folding != 0 {
		same = strings.EqualFold
		stored = strings.ToLower(stored)
	}

	// The current database may have any name, so it is the one thing quoted.
	found, seen := "", ""
	err = query(ctx, db, fmt.Sprintf(`
		SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, COALESCE(ENGINE, '')
		FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN ('%s', '%s', '%s')`,
		literal(database), stored, name.table, strings.ToLower(name.table)),
		func(rows *sql.Rows) error {
			var owner, table, typ, engine string
			if err := rows.Scan(&owner, &table, &typ, &engine); err != nil {
				return err
			}
			switch {
			case !same(table, name.table) || name.schema != "" && !same(owner, name.schema):
				seen = "but there is " + owner + "." + table + ", and this server tells upper from lower case"
				return nil
			}
			t.versioned = typ == "SYSTEM VERSIONED"
			t.found = "a " + strings.ToLower(typ) // a sequence, a view
			if typ == "BASE TABLE" || t.versioned {
				t.found = aTable
			}
			database, found, t.engine = owner, table, engine
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("look for the table: %w", err)
	}
	if found == "" {
		return nil, missing(d, name, "database "+database, seen)
	}
	// Equal, and equal byte by byte: the first lets the server go straight to
	// the table, the second is exact.
	where := fmt.Sprintf("TABLE_SCHEMA = %[1]s AND TABLE_NAME = '%[2]s' AND CAST(TABLE_NAME AS BINARY) = CAST('%[2]s' AS BINARY)",
		literal(database), found)
	if err := d.readColumns(ctx, db, t, where); err != nil {
		return nil, fmt.Errorf("read its columns: %w", err)
	}
	if t.found == aSequence {
		if err := d.readSequence(ctx, db, t, backquote(database)+"."+backquote(found)); err != nil {
			return nil, fmt.Errorf("read the sequence: %w", err)
		}
		return t, nil
	}
	if err := d.readIndexes(ctx, db, t, where); err != nil {
		return nil, fmt.Errorf("read its indexes: %w", err)
	}
	return t, nil
}

// readSequence reads MariaDB's sequence as a table of one row. That needs the
// right to SELECT, as NEXTVAL does. SHOW CREATE SEQUENCE needs less, but
// answers in prose, and information_schema.SEQUENCES is not in every version.
// LEAST is for a BIGINT UNSIGNED, which MariaDB 11.5 may have.
func (d mysql) readSequence(ctx context.Context, db DB, t *table, name string) error {
	s := &t.sequence
	for _, c := range t.columns { // the type of the sequence is that of its columns
		if c.name == "MAXIMUM_VALUE" {
			s.typ, s.bits = c.typ, c.size
		}
	}
	return query(ctx, db, fmt.Sprintf("SELECT LEAST(start_value, %[1]d), LEAST(maximum_value, %[1]d), increment, cache_size, cycle_option FROM %[2]s", math.MaxInt64, name),
		func(rows *sql.Rows) error {
			return rows.Scan(&s.start, &s.max, &s.increment, &s.cache, &s.cycle)
		})
}

// literal writes a name as text in hexadecimal, which needs no escaping in any
// sql_mode.
func literal(s string) string { return fmt.Sprintf("CONVERT(x'%x' USING utf8mb4)", s) }

func backquote(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

func (d mysql) readColumns(ctx context.Context, db DB, t *table, where string) error {
	return query(ctx, db, `
		SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE = 'YES', COLUMN_DEFAULT IS NOT NULL, EXTRA,
			COALESCE(CHARACTER_MAXIMUM_LENGTH, -1), COALESCE(DATETIME_PRECISION, 0),
			COALESCE(CHARACTER_SET_NAME, ''), COALESCE(COLLATION_NAME, '')
		FROM information_schema.COLUMNS WHERE `+where+` ORDER BY ORDINAL_POSITION`,
		func(rows *sql.Rows) error {
			var c column
			var typ, extra string
			var length int64
			var digits int
			err := rows.Scan(&c.name, &typ, &c.typ, &c.nullable, &c.filled, &extra, &length, &digits, &c.charset, &c.collation)
			c.ident = backquote(c.name)
			c.name = strings.ToUpper(c.name)
			extra = strings.ToUpper(extra)
			c.counter = strings.Contains(extra, "AUTO_INCREMENT")
			// DEFAULT_GENERATED is a default that is an expression, no more.
			c.generated = strings.Contains(extra, "VIRTUAL") || strings.Contains(extra, "STORED") || strings.Contains(extra, "PERSISTENT")
			c.filled = c.filled || c.counter || c.generated
			switch strings.ToLower(typ) {
			case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
				c.kind, c.size = text, int(min(length, unlimited))
			case "datetime":
				c.kind, c.size = moment, digits
			case "bigint":
				c.kind, c.size = integer, 64
			case "int", "mediumint", "smallint", "tinyint":
				c.kind, c.size = integer, 32
			}
			t.columns = append(t.columns, c)
			return err
		})
}

func (d mysql) readIndexes(ctx context.Context, db DB, t *table, where string) error {
	return query(ctx, db, `
		SELECT INDEX_NAME, NON_UNIQUE = 0, COALESCE(COLUMN_NAME, '(expression)'), COALESCE(SUB_PART, 0)
		FROM information_schema.STATISTICS WHERE `+where+` ORDER BY INDEX_NAME, SEQ_IN_INDEX`,
		func(rows *sql.Rows) error {
			var ix index
			var name string
			var part int
			if err := rows.Scan(&ix.ident, &ix.unique, &name, &part); err != nil {
				return err
			}
			ix.primary = ix.ident == "PRIMARY"
			ix.ident = backquote(ix.ident)
			name = strings.ToUpper(name)
			if part > 0 {
				name = fmt.Sprintf("%s(%d)", name, part) // the beginning of the column only
			}
			if n := len(t.indexes); n == 0 || t.indexes[n-1].ident != ix.ident {
				t.indexes = append(t.indexes, ix)
			}
			last := &t.indexes[len(t.indexes)-1]
			last.columns = append(last.columns, name)
			return nil
		})
}

func (d mysql) quirks(t *table) []Problem {
	var problems []Problem
	if !strings.EqualFold(t.engine, "InnoDB") {
		problems = append(problems, Problem{
			Found: "the storage engine " + t.engine,
			Want:  "InnoDB, which has transactions and survives a crash",
			Fix:   t.alter("ENGINE=InnoDB"),
		})
	}
	if t.versioned {
		problems = append(problems, Problem{
			Found: "a system-versioned table",
			Want:  "a plain one: it would keep a row for each update for ever",
			Fix:   t.alter("DROP SYSTEM VERSIONING"),
		})
	}
	for _, w := range t.layout {
		have := t.column(w.name)
		if have == nil {
			continue
		}
		add := func(found, want, fix string) {
			problems = append(problems, Problem{Column: w.name, Found: found, Want: want, Fix: fix})
		}
		isText := w.kind == text && have.kind == text
		switch {
		case isText && w.ours && have.charset != "utf8mb4":
			add(have.typ+" in "+have.charset, d.typeOf(w)+": a character that does not fit makes the INSERT fail", d.retype(t, w, have))
		case isText && w.bytes && have.collation != d.bytewise():
			add(have.typ+" in "+have.collation, d.typeOf(w)+": in others two names may count as one", d.retype(t, w, have))
		case w.counter && !have.counter:
			add(have.typ+" without AUTO_INCREMENT", d.typeOf(w)+" AUTO_INCREMENT: it is what makes tokens rise", d.count(t, w))
		}
	}
	return problems
}

// bytewise is the collation to which all differences count, also blanks at
// the end.
func (d mysql) bytewise() string {
	if d.name == vendor.MariaDB {
		return "utf8mb4_nopad_bin"
	}
	return "utf8mb4_0900_bin"
}

func (d mysql) tokenSource() part {
	if d.name == vendor.MariaDB {
		return part{is: aSequence}
	}
	return part{
		is: aTable,
		layout: []wanted{
			{name: lockKey, kind: text, size: 36, sign: true},
			{name: region, kind: text, size: 100, sign: true},
			{name: token, kind: integer, size: 64, sign: true, counter: true},
		},
		key:    []string{lockKey, region},
		keyWhy: "one row for each lock, or the table grows with each token",
	}
}
