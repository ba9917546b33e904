package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

type sqlite struct{}

func (sqlite) vendor() string { return vendor.SQLite }

// layout has numbers for dates, and no lengths: SQLite ignores them.
func (sqlite) layout() []wanted {
	all := standard()
	for i := range all {
		if all[i].kind == moment {
			all[i].kind, all[i].size = integer, 64
		}
	}
	return all
}

// isBusy reports SQLite's BUSY and LOCKED, with any of their extended codes.
// The driver is not imported; modernc's error has the code as a method, and of
// others the text is known, as it is SQLite's own.
func isBusy(err error) bool {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		code := coded.Code() & 0xff
		return code == 5 || code == 6
	}
	return strings.HasSuffix(err.Error(), "database is locked") || strings.HasSuffix(err.Error(), "database table is locked")
}

// read asks pragma functions. An unqualified name means a temporary table
// first, then one in main, then in the attached databases.
func (d sqlite) read(ctx context.Context, db DB, p part) (*table, error) {
	t, name := &table{part: p}, p.name
	database, best := "", 0
	rank := map[string]int{"temp": 3, "main": 2}
	err := query(ctx, db, fmt.Sprintf("SELECT schema, type FROM pragma_table_list WHERE lower(name) = '%s'", strings.ToLower(name.table)),
		func(rows *sql.Rows) error {
			var owner, typ string
			if err := rows.Scan(&owner, &typ); err != nil {
				return err
			}
			if name.schema != "" && !strings.EqualFold(owner, name.schema) {
				return nil
			}
			if n := max(rank[owner], 1); n > best {
				database, best = owner, n
				t.found = map[string]string{"table": aTable, "view": "a view", "virtual": "a virtual table", "shadow": "part of a virtual table"}[typ]
			}
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("look for the table: %w", err)
	}
	if database == "" {
		return nil, missing(d, name, "", "")
	}
	t.temporary = database == "temp"
	t.schema, t.elsewhere = sqliteIdent(database), database != "main"
	if err := d.readColumns(ctx, db, t, database); err != nil {
		return nil, fmt.Errorf("read its columns: %w", err)
	}
	if err := d.readIndexes(ctx, db, t, database); err != nil {
		return nil, fmt.Errorf("read its indexes: %w", err)
	}
	return t, nil
}

func sqliteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func sqliteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// readColumns also makes an index of the primary key: in a rowid table it has
// one of its own, in others it has none.
func (d sqlite) readColumns(ctx context.Context, db DB, t *table, database string) error {
	var key []string
	err := query(ctx, db, fmt.Sprintf(`
		SELECT name, type, "notnull" = 0, dflt_value IS NOT NULL, pk, hidden
		FROM pragma_table_xinfo('%s', %s) ORDER BY pk, cid`, t.name.table, sqliteText(database)),
		func(rows *sql.Rows) error {
			var c column
			var pk, hidden int
			err := rows.Scan(&c.name, &c.typ, &c.nullable, &c.filled, &pk, &hidden)
			c.ident = sqliteIdent(c.name)
			c.name = strings.ToUpper(c.name)
			c.generated = hidden > 1
			c.filled = c.filled || c.generated
			c.kind, c.size = affinity(c.typ)
			if c.typ == "" {
				c.typ = "no type"
			}
			if pk > 0 {
				key = append(key, c.name)
			}
			t.columns = append(t.columns, c)
			return err
		})
	if len(key) > 0 {
		t.indexes = append(t.indexes, index{ident: "PRIMARY KEY", columns: key, primary: true, unique: true})
	}
	return err
}

// affinity is SQLite's rule for what a declared type does to values. DATE,
// DATETIME and TIMESTAMP are NUMERIC to it: a text stays a text there.
func affinity(declared string) (kind, int) {
	upper := strings.ToUpper(declared)
	switch {
	case strings.Contains(upper, "INT"):
		return integer, 64
	case strings.Contains(upper, "CHAR"), strings.Contains(upper, "CLOB"), strings.Contains(upper, "TEXT"):
		return text, unlimited
	}
	return other, 0
}

func (d sqlite) readIndexes(ctx context.Context, db DB, t *table, database string) error {
	return query(ctx, db, fmt.Sprintf(`
		SELECT l.name, l.origin, COALESCE(i.name, '(expression)')
		FROM pragma_index_list('%[1]s', %[2]s) l JOIN pragma_index_info(l.name, %[2]s) i
		WHERE l."unique" AND l.origin <> 'pk' ORDER BY l.seq, i.seqno`, t.name.table, sqliteText(database)),
		func(rows *sql.Rows) error {
			ix := index{unique: true}
			var origin, name string
			if err := rows.Scan(&ix.ident, &origin, &name); err != nil {
				return err
			}
			ix.ident = sqliteIdent(ix.ident)
			if origin == "u" {
				ix.constraint = ix.ident // belongs to the CREATE TABLE
			}
			if n := len(t.indexes); n == 0 || t.indexes[n-1].ident != ix.ident {
				t.indexes = append(t.indexes, ix)
			}
			last := &t.indexes[len(t.indexes)-1]
			last.columns = append(last.columns, strings.ToUpper(name))
			return nil
		})
}

func (sqlite) quirks(t *table) []Problem {
	if t.temporary {
		return []Problem{{Found: "a temporary one", Want: "a permanent one: no other connection sees it", Fix: recreate}}
	}
	return nil
}

func (sqlite) tokenSource() part {
	return part{
		is: aTable,
		layout: []wanted{
			{name: tokenID, kind: integer, size: 64, sign: true},
			{name: token, kind: integer, size: 64, sign: true, notNull: "what follows NULL is NULL"},
		},
		key:    []string{tokenID},
		keyWhy: "one row, which counts",
	}
}

// There are no sequences in SQLite.

func (sqlite) widen(*sequence) string { return "" }
func (sqlite) noCycle() string        { return "" }

func (sqlite) typeOf(w wanted) string {
	if w.kind == integer {
		return "INTEGER"
	}
	return "TEXT"
}

// add is ALTER TABLE for the columns that may be NULL. For the others SQLite
// wants a constant default, which would stay.
func (d sqlite) add(t *table, w wanted) string {
	if w.ours || w.name == clientID {
		return "ALTER TABLE " + t.name.sql + " ADD COLUMN " + w.name + " " + d.typeOf(w) + ";"
	}
	return recreate
}

// dropIndex cannot drop the index of a UNIQUE clause.
func (sqlite) dropIndex(t *table, ix *index) string {
	if ix.constraint != "" {
		return recreate
	}
	if t.name.schema != "" {
		return "DROP INDEX " + t.name.schema + "." + ix.ident + ";"
	}
	return "DROP INDEX " + ix.ident + ";"
}

// ALTER TABLE in SQLite changes neither types nor constraints.

func (sqlite) retype(*table, wanted, *column) string { return recreate }
func (sqlite) forbidNull(*table, wanted) string      { return recreate }
func (sqlite) allowNull(*table, *column) string      { return recreate }
func (sqlite) primaryKey(*table, *index) string      { return recreate }
