package schema_test

import (
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

// layout is a table to build, by default the one of our scripts. It is
// written out here a second time on purpose: the scripts, the check and this
// must agree.
type layout struct {
	vendor  string
	columns []string
	types   map[string]string // the whole definition behind the name
	values  map[string]string // SQL for one row
	key     string
	suffix  string
}

func ours(name string) *layout {
	l := &layout{
		vendor:  name,
		columns: []string{"LOCK_KEY", "REGION", "CLIENT_ID", "CREATED_DATE", "EXPIRED_AFTER", "ATTEMPT", "HOLDER", "LOCK_NAME"},
		types: map[string]string{
			"LOCK_KEY": "CHAR(36) NOT NULL", "REGION": "VARCHAR(100) NOT NULL", "CLIENT_ID": "CHAR(36)",
			"CREATED_DATE": "TIMESTAMP NOT NULL", "EXPIRED_AFTER": "TIMESTAMP NOT NULL",
			"ATTEMPT": "BIGINT", "HOLDER": "VARCHAR(255)", "LOCK_NAME": "VARCHAR(255)",
		},
		values: map[string]string{
			"LOCK_KEY": "'acbd18db-4cc2-385c-adef-654fccc4a4d8'", "REGION": "'DEFAULT'",
			"CREATED_DATE": "'2026-01-02 03:04:05.678'", "EXPIRED_AFTER": "'2026-01-02 03:04:15.678'",
		},
		key: ", CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION)",
	}
	switch name {
	case vendor.MySQL, vendor.MariaDB:
		// As Spring's script: keys in the database's default collation.
		l.suffix = " ENGINE=InnoDB"
		l.types["CREATED_DATE"] = "DATETIME(6) NOT NULL"
		l.types["EXPIRED_AFTER"] = "DATETIME(6) NOT NULL"
		l.types["HOLDER"] = "VARCHAR(255) CHARACTER SET utf8mb4"
		l.types["LOCK_NAME"] = "VARCHAR(255) CHARACTER SET utf8mb4"
	case vendor.SQLite:
		l.types["CREATED_DATE"] = "INTEGER NOT NULL"
		l.types["EXPIRED_AFTER"] = "INTEGER NOT NULL"
		l.values["CREATED_DATE"] = "1767323045678"
		l.values["EXPIRED_AFTER"] = "1767323055678"
	}
	return l
}

// with changes a column's definition or appends a column.
func (l *layout) with(column, definition string) *layout {
	if _, ok := l.types[column]; !ok {
		l.columns = append(l.columns, column)
	}
	l.types[column] = definition
	return l
}

// value changes what the row has in a column; empty leaves it out.
func (l *layout) value(column, value string) *layout {
	l.values[column] = value
	return l
}

func (l *layout) without(columns ...string) *layout {
	for _, c := range columns {
		l.types[c] = ""
		l.values[c] = ""
	}
	return l
}

func (l *layout) keyed(key string) *layout {
	l.key = key
	return l
}

// spring7 and spring6 are the tables of Spring's own scripts, before and since
// version 7.
func spring7(name string) *layout { return ours(name).without("ATTEMPT", "HOLDER", "LOCK_NAME") }
func spring6(name string) *layout { return spring7(name).without("EXPIRED_AFTER") }

// create returns the statements that make the table and put a row into it: a
// fix must work while there are locks.
func (l *layout) create() []string {
	var definitions, names, values []string
	for _, c := range l.columns {
		if l.types[c] == "" {
			continue
		}
		definitions = append(definitions, c+" "+l.types[c])
		if l.values[c] != "" {
			names = append(names, c)
			values = append(values, l.values[c])
		}
	}
	return []string{
		"CREATE TABLE INT_LOCK (" + strings.Join(definitions, ", ") + l.key + ")" + l.suffix,
		"INSERT INTO INT_LOCK (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")",
	}
}
