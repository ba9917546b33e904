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
)

// tableName is the lock table's name in its parts. All of them are plain
// identifiers, see vendor.CheckPrefix, so they go into SQL text as they are;
// a parameter would cost a second round trip, and fails behind poolers that
// change the connection between the two.
type tableName struct {
	sql    string // as written in statements
	schema string // empty if the prefix has none
	table  string
	prefix string
}

func nameOf(prefix string) tableName {
	n := tableName{sql: vendor.Table(prefix), prefix: prefix}
	n.table = n.sql
	if schema, table, ok := strings.Cut(n.sql, "."); ok {
		n.schema, n.table = schema, table
	}
	return n
}

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
	expiry     bool // reads EXPIRED_AFTER in any way
}

// table is one that was found.
type table struct {
	name      tableName
	notTable  string // what it is instead, such as "a view"
	engine    string // MySQL and MariaDB
	temporary bool
	unlogged  bool // Postgres
	versioned bool // MariaDB
	columns   []column
	indexes   []index
}

// alter is an ALTER TABLE of this table.
func (t *table) alter(what string) string { return "ALTER TABLE " + t.name.sql + " " + what + ";" }

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
	// read returns the table that a statement with this name would reach, or
	// an error that matches ErrMissing. Every query's rows are closed before
	// the next begins, for pools of one connection.
	read(ctx context.Context, db DB, name tableName) (*table, error)
	// layout lists the columns a table must have.
	layout() []wanted
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
