package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/intlock/intlock/internal/vendor"
)

// The columns, spelled as in the scripts. Readers spell what they find the
// same way, as the servers do not care about the case of these names.
const (
	lockKey      = "LOCK_KEY"
	region       = "REGION"
	clientID     = "CLIENT_ID"
	createdDate  = "CREATED_DATE"
	expiredAfter = "EXPIRED_AFTER"
	attempt      = "ATTEMPT"
	holder       = "HOLDER"
	lockName     = "LOCK_NAME"

	token    = "TOKEN"
	tokenID  = "ID"
	resource = "RESOURCE"
)

// kind is what a column can hold, as far as we must tell columns apart.
type kind int

const (
	other   kind = iota
	text         // size in characters
	integer      // size in bits
	moment       // size in digits of the second
)

// unlimited is the size of text without a limit.
const unlimited = math.MaxInt

// column is one that was found.
type column struct {
	name      string
	ident     string // for SQL text, quoted if need be
	typ       string // in the server's words
	kind      kind
	size      int
	charset   string // MySQL and MariaDB
	collation string // MySQL and MariaDB
	nullable  bool
	filled    bool // an INSERT need not name it: default, identity, generated
	generated bool // an INSERT must not name it
	counter   bool // AUTO_INCREMENT
}

// index is one that was found.
type index struct {
	ident      string // for SQL text, quoted if need be
	constraint string // the constraint it belongs to, for SQL text, or empty
	columns    []string
	primary    bool
	unique     bool
	deferrable bool
	hot        bool // reads the part's hot column in any way
}

// table is one that was found, or what was found in its place.
type table struct {
	part             // what it must be
	found     string // what it is: aTable, aSequence, "a view"
	schema    string // where it is, for SQL text; empty if there is one place only
	elsewhere bool   // a CREATE of the unqualified name would go to another schema
	engine    string // MySQL and MariaDB
	temporary bool
	unlogged  bool // Postgres
	versioned bool // MariaDB
	columns   []column
	indexes   []index
	sequence  sequence
}

// home is the schema that must stand in front of the name of what is to be
// created beside it. It is empty if that is the place without saying.
func (t *table) home() string {
	if t.elsewhere && !t.temporary {
		return t.schema
	}
	return ""
}

// alter is an ALTER TABLE of this table.
func (t *table) alter(what string) string { return "ALTER TABLE " + t.name.sql + " " + what + ";" }

// fillNull gives rows without a value the one that they stand for.
func fillNull(t *table, w wanted) string {
	value := "0"
	if w.name == expiredAfter {
		value = createdDate
	}
	return "UPDATE " + t.name.sql + " SET " + w.name + " = " + value + " WHERE " + w.name + " IS NULL;"
}

func (t *table) column(name string) *column {
	for i := range t.columns {
		if t.columns[i].name == name {
			return &t.columns[i]
		}
	}
	return nil
}

func (t *table) primary() *index {
	for i := range t.indexes {
		if t.indexes[i].primary {
			return &t.indexes[i]
		}
	}
	return nil
}

// dialect is what a vendor adds.
type dialect interface {
	vendor() string
	// read returns what a statement with this part's name would reach, or an
	// error that matches ErrMissing. Every query's rows are closed before the
	// next begins, for pools of one connection.
	read(ctx context.Context, db DB, p part) (*table, error)
	// layout lists the columns a lock table must have.
	layout() []wanted
	// tokenSource is that part without its name and purpose.
	tokenSource() part
	// typeOf is a column's type as the script has it.
	typeOf(w wanted) string
	// quirks finds what only this vendor can have.
	quirks(t *table) []Problem

	// The statements that mend one finding each. recreate stands for "there
	// is no shorter way than a new table".
	add(t *table, w wanted) string
	retype(t *table, w wanted, have *column) string
	forbidNull(t *table, w wanted) string
	allowNull(t *table, have *column) string
	primaryKey(t *table, old *index) string
	dropIndex(t *table, ix *index) string

	// The same for a sequence: what stands behind its name in ALTER SEQUENCE.
	widen(s *sequence) string
	noCycle() string
}

var dialects = map[string]dialect{
	vendor.Postgres: postgres{},
	vendor.MySQL:    mysql{vendor.MySQL},
	vendor.MariaDB:  mysql{vendor.MariaDB},
	vendor.SQLite:   sqlite{},
}

// missing says that there is no table. where tells in which schema it was
// looked for, hint what else was seen; both may be empty.
func missing(d dialect, name tableName, where, hint string) error {
	if where != "" {
		where = " in " + where
	}
	if hint != "" {
		hint = " (" + hint + ")"
	}
	script := fmt.Sprintf("the text of schema.Script(%q, %q)", d.vendor(), name.prefix)
	if name.prefix == vendor.DefaultPrefix {
		script = "schema/" + d.vendor() + ".sql"
	}
	return fmt.Errorf("%w: %s does not exist%s%s; call schema.Apply or run %s", ErrMissing, name.sql, where, hint, script)
}

// query runs one query and scans every row, and has given the connection back
// when it returns.
func query(ctx context.Context, db DB, text string, scan func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}
