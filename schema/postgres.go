package schema

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

type postgres struct{}

func (postgres) vendor() string   { return vendor.Postgres }
func (postgres) layout() []wanted { return standard() }

// serialised makes concurrent creations wait for each other. IF NOT EXISTS
// does not: the loser of a race gets a unique violation on a system catalog,
// and the server's log an error. A DO block because the lock must be taken in
// the transaction that creates, and it is one statement for every driver and
// pooler.
func serialised(all []string) string {
	const key = 0x696e746c6f636b // "intlock"
	return fmt.Sprintf("DO $intlock$ BEGIN\nPERFORM pg_catalog.pg_advisory_xact_lock(%d);\n%s;\nEND $intlock$",
		key, strings.Join(all, ";\n"))
}

// read asks pg_catalog: information_schema hides what the user has no right
// to, and knows neither the search_path nor indexes. to_regclass finds what a
// statement would, upper case folded to lower.
func (d postgres) read(ctx context.Context, db DB, p part) (*table, error) {
	t := &table{part: p}
	var oid int64
	err := query(ctx, db, fmt.Sprintf(`
		SELECT c.oid::bigint, c.relkind::text, c.relpersistence::text,
			pg_catalog.quote_ident(n.nspname), n.nspname IS DISTINCT FROM pg_catalog.current_schema()
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = pg_catalog.to_regclass('%s')`, p.name.sql),
		func(rows *sql.Rows) error {
			var relkind, persistence string
			if err := rows.Scan(&oid, &relkind, &persistence, &t.schema, &t.elsewhere); err != nil {
				return err
			}
			t.found = map[string]string{
				"r": aTable, "p": aTable, "S": aSequence,
				"v": "a view", "m": "a materialized view", "f": "a foreign table",
				"i": "an index", "I": "an index", "c": "a composite type",
			}[relkind]
			t.temporary = persistence == "t"
			t.unlogged = persistence == "u"
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("look for the table: %w", err)
	}
	if oid == 0 {
		return nil, d.missing(ctx, db, p.name)
	}
	if t.found == aSequence {
		return t, d.readSequence(ctx, db, t, oid)
	}
	if err := d.readColumns(ctx, db, t, oid); err != nil {
		return nil, fmt.Errorf("read its columns: %w", err)
	}
	if err := d.readIndexes(ctx, db, t, oid); err != nil {
		return nil, fmt.Errorf("read its indexes: %w", err)
	}
	return t, nil
}

// missing adds where a table of that name is: in a schema that is not on the
// search_path, or with a name that was quoted when it was created.
func (d postgres) missing(ctx context.Context, db DB, name tableName) error {
	var where string
	var seen []string
	err := query(ctx, db, fmt.Sprintf(`
		SELECT pg_catalog.array_to_string(pg_catalog.current_schemas(false), ', '), COALESCE(s.seen, '')
		FROM (SELECT 1) one LEFT JOIN (
			SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS seen
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE pg_catalog.lower(c.relname::text) = pg_catalog.lower('%s') AND c.relkind IN ('r', 'p')
			ORDER BY 1 LIMIT 5) s ON true`, name.table),
		func(rows *sql.Rows) error {
			var other string
			if err := rows.Scan(&where, &other); err != nil {
				return err
			}
			if other != "" {
				seen = append(seen, other)
			}
			return nil
		})
	if err != nil {
		return fmt.Errorf("look for the table: %w", err)
	}
	if name.schema != "" {
		where = name.schema
	} else {
		where = fmt.Sprintf("the search_path (%s)", where)
	}
	hint := ""
	if len(seen) > 0 {
		hint = "but there is " + strings.Join(seen, ", ")
	}
	return missing(d, name, where, hint)
}

// readSequence asks the catalog, which everybody may read. The view
// pg_sequences tells the same, and of some users the last value is hidden.
func (d postgres) readSequence(ctx context.Context, db DB, t *table, oid int64) error {
	s := &t.sequence
	err := query(ctx, db, fmt.Sprintf(`
		SELECT pg_catalog.format_type(s.seqtypid, NULL), y.typlen * 8, s.seqstart, s.seqmax, s.seqincrement, s.seqcache, s.seqcycle
		FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_type y ON y.oid = s.seqtypid WHERE s.seqrelid = %d`, oid),
		func(rows *sql.Rows) error {
			return rows.Scan(&s.typ, &s.bits, &s.start, &s.max, &s.increment, &s.cache, &s.cycle)
		})
	if err != nil {
		return fmt.Errorf("read the sequence: %w", err)
	}
	return nil
}

// fold spells a column as the scripts do. A name that had to be quoted to be
// what it is, such as "HOLDER" in upper case, keeps its quotes: it is another
// name than HOLDER.
func fold(name string) string {
	if name == strings.ToLower(name) {
		return strings.ToUpper(name)
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func (d postgres) readColumns(ctx context.Context, db DB, t *table, oid int64) error {
	return query(ctx, db, fmt.Sprintf(`
		SELECT a.attname::text, pg_catalog.quote_ident(a.attname), y.typname::text, a.atttypmod,
			pg_catalog.format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
			a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a'
		FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
		WHERE a.attrelid = %d AND a.attnum > 0 AND NOT a.attisdropped
		ORDER BY a.attnum`, oid),
		func(rows *sql.Rows) error {
			var c column
			var typ string
			var modifier int
			err := rows.Scan(&c.name, &c.ident, &typ, &modifier, &c.typ, &c.nullable, &c.filled, &c.generated)
			c.name = fold(c.name)
			switch typ {
			case "bpchar", "varchar":
				c.kind, c.size = text, modifier-4 // the catalog counts a header of 4
				if modifier < 0 {
					c.size = unlimited
				}
			case "text":
				c.kind, c.size = text, unlimited
			case "timestamp":
				c.kind, c.size = moment, modifier
				if modifier < 0 {
					c.size = 6
				}
			case "int8", "int4", "int2":
				c.kind, c.size = integer, map[string]int{"int8": 64, "int4": 32, "int2": 16}[typ]
			}
			t.columns = append(t.columns, c)
			return err
		})
}

// readIndexes gets a row per index and key column. An index reads a column
// without having it as a key in an expression, a condition or an INCLUDE
// clause; pg_depend knows of the first two, the key list of the third.
func (d postgres) readIndexes(ctx context.Context, db DB, t *table, oid int64) error {
	return query(ctx, db, fmt.Sprintf(`
		SELECT i.indexrelid::pg_catalog.regclass::text, COALESCE(pg_catalog.quote_ident(con.conname), ''),
			i.indisprimary, i.indisunique, NOT i.indimmediate,
			k.position <= i.indnkeyatts, COALESCE(a.attname::text, '(expression)'),
			EXISTS (SELECT 1 FROM pg_catalog.pg_depend p
				JOIN pg_catalog.pg_attribute e ON e.attrelid = p.refobjid AND e.attnum = p.refobjsubid
				WHERE p.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND p.objid = i.indexrelid
				AND p.refclassid = p.classid AND p.refobjid = i.indrelid AND e.attname = '%s')
		FROM pg_catalog.pg_index i
		CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY k(attnum, position)
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
		LEFT JOIN pg_catalog.pg_constraint con ON con.conindid = i.indexrelid AND con.conrelid = i.indrelid
			AND con.contype IN ('p', 'u', 'x')
		WHERE i.indrelid = %d
		ORDER BY i.indexrelid, k.position`, strings.ToLower(t.hot), oid),
		func(rows *sql.Rows) error {
			var ix index
			var isKey bool
			var name string
			if err := rows.Scan(&ix.ident, &ix.constraint, &ix.primary, &ix.unique, &ix.deferrable, &isKey, &name, &ix.hot); err != nil {
				return err
			}
			name = fold(name)
			if n := len(t.indexes); n == 0 || t.indexes[n-1].ident != ix.ident {
				t.indexes = append(t.indexes, ix)
			}
			last := &t.indexes[len(t.indexes)-1]
			if isKey {
				last.columns = append(last.columns, name)
			}
			last.hot = last.hot || name == t.hot
			return nil
		})
}

func (d postgres) quirks(t *table) []Problem {
	var problems []Problem
	if t.temporary {
		problems = append(problems, Problem{Found: "a temporary one", Want: "a permanent one: no other session sees it", Fix: recreate})
	}
	if t.unlogged {
		problems = append(problems, Problem{
			Found: "an unlogged one",
			Want:  "a logged one: a crash of the server would empty or reset it while locks are held",
			Fix:   t.alter("SET LOGGED"),
		})
	}
	for i := range t.indexes {
		ix := &t.indexes[i]
		// The primary key is judged as such.
		if !ix.hot || ix.primary {
			continue
		}
		problems = append(problems, Problem{
			Column: t.hot,
			Found:  "the index " + ix.ident + " on it",
			Want:   "no index: updates change the column, and an index on it ends HOT updates, so that table and indexes grow with each of them",
			Fix:    d.dropIndex(t, ix),
		})
	}
	return problems
}

func (postgres) tokenSource() part { return part{is: aSequence} }

func (postgres) widen(*sequence) string { return "AS BIGINT NO MAXVALUE" }
func (postgres) noCycle() string        { return "NO CYCLE" }

func (postgres) typeOf(w wanted) string {
	switch w.name {
	case lockKey, clientID:
		return "CHAR(36)"
	}
	switch w.kind {
	case moment:
		return "TIMESTAMP"
	case integer:
		return "BIGINT"
	}
	collation := ""
	if w.bytes {
		collation = ` COLLATE "C"`
	}
	return fmt.Sprintf("VARCHAR(%d)%s", w.size, collation)
}

func (d postgres) add(t *table, w wanted) string {
	column := t.alter("ADD COLUMN " + w.name + " " + d.typeOf(w))
	if w.kind != moment {
		return column
	}
	value := "pg_catalog.clock_timestamp() AT TIME ZONE 'UTC'"
	if w.name == expiredAfter {
		value = createdDate + " + INTERVAL '10 seconds'"
	}
	return strings.Join([]string{
		column,
		"UPDATE " + t.name.sql + " SET " + w.name + " = " + value + ";",
		t.alter("ALTER COLUMN " + w.name + " SET NOT NULL"),
	}, "\n")
}

func (d postgres) retype(t *table, w wanted, have *column) string {
	using := ""
	switch {
	case w.kind == moment && strings.HasSuffix(have.typ, "with time zone") && strings.HasPrefix(have.typ, "timestamp"):
		using = " USING " + w.name + " AT TIME ZONE 'UTC'"
	case w.kind == moment && have.kind != moment:
		return recreate // nobody knows what a number or a text means as a time
	case w.kind == integer && have.kind != integer:
		using = " USING " + w.name + "::text::bigint"
	}
	return t.alter("ALTER COLUMN " + w.name + " TYPE " + d.typeOf(w) + using)
}

func (d postgres) forbidNull(t *table, w wanted) string {
	return fillNull(t, w) + "\n" +
		t.alter("ALTER COLUMN "+w.name+" SET NOT NULL")
}

func (d postgres) allowNull(t *table, have *column) string {
	return t.alter("ALTER COLUMN " + have.ident + " DROP NOT NULL")
}

// primaryKey lets the server choose the constraint's name: INT_LOCK_PK may be
// that of an index which is no primary key.
func (d postgres) primaryKey(t *table, old *index) string {
	key := "ADD PRIMARY KEY (" + strings.Join(t.key, ", ") + ")"
	if old != nil {
		key = "DROP CONSTRAINT " + old.constraint + ", " + key
	}
	return t.alter(key)
}

func (d postgres) dropIndex(t *table, ix *index) string {
	if ix.constraint != "" {
		return t.alter("DROP CONSTRAINT " + ix.constraint)
	}
	return "DROP INDEX " + ix.ident + ";"
}
