package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// mysql serves MariaDB as well; name tells them apart.
type mysql struct{ name string }

func (d mysql) vendor() string { return d.name }
func (mysql) layout() []wanted { return standard() }

// read asks information_schema with the name exactly as the server stores it:
// on most servers INT_LOCK and int_lock are two tables, but some comparisons
// there ignore case all the same.
func (d mysql) read(ctx context.Context, db DB, name tableName) (*table, error) {
	t := &table{name: name}
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
			case typ == "SYSTEM VERSIONED":
				t.versioned = true
			case typ != "BASE TABLE":
				t.notTable = "a " + strings.ToLower(typ)
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
	if err := d.readIndexes(ctx, db, t, where); err != nil {
		return nil, fmt.Errorf("read its indexes: %w", err)
	}
	return t, nil
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
			Want:  "a plain one: it would keep a row for each renewal for ever",
			Fix:   t.alter("DROP SYSTEM VERSIONING"),
		})
	}
	for _, w := range d.layout() {
		have := t.column(w.name)
		if !w.ours || w.kind != text || have == nil || have.kind != text || have.charset == "utf8mb4" {
			continue
		}
		problems = append(problems, Problem{
			Column: w.name,
			Found:  have.typ + " in " + have.charset,
			Want:   d.typeOf(w) + ": a character that does not fit makes the INSERT fail",
			Fix:    d.retype(t, w, have),
		})
	}
	return problems
}

func (mysql) typeOf(w wanted) string {
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
	return fmt.Sprintf("VARCHAR(%d) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", w.size)
}

// full is a column's type with its nullability, which MODIFY needs anew.
func (d mysql) full(w wanted) string {
	if w.ours || w.name == clientID {
		return d.typeOf(w)
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
	return "UPDATE " + t.name.sql + " SET " + w.name + " = " + createdDate + " WHERE " + w.name + " IS NULL;\n" +
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
	what := "ADD PRIMARY KEY (LOCK_KEY, REGION)"
	if old != nil {
		what = "DROP PRIMARY KEY, " + what
		for _, c := range t.columns {
			if c.counter { // must stay the first column of some key
				what = "ADD KEY (" + c.ident + "), " + what
			}
		}
	}
	return t.alter(what)
}

func (d mysql) dropIndex(t *table, ix *index) string {
	return t.alter("DROP INDEX " + ix.ident)
}
