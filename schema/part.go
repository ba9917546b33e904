package schema

import (
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

// What can stand under a name.
const (
	aTable    = "a table"
	aSequence = "a sequence"
)

// part is one of the three objects under a prefix, as it must be.
type part struct {
	name   tableName
	is     string // aTable or aSequence
	noun   string // for people: "lock table"
	use    string // what it is good for
	layout []wanted
	key    []string // the primary key
	keyWhy string
	// hot is a column that most updates change. On Postgres no index may read it.
	hot string
	// shortLived: what is in it is forgotten soon anyway, so that a new one may
	// take its place. Tokens and marks are not: a new source begins at 1, below
	// what resources have seen, and a new guard lets stale writes pass.
	shortLived bool
}

// wanted is a column that a table must have.
type wanted struct {
	name string
	kind kind
	size int
	// ours: Spring does not know the column, and its INSERT does not name it.
	ours bool
	// sign: a table without the column is somebody else's.
	sign bool
	// notNull is the reason why it must be NOT NULL, or empty.
	notNull string
	counter bool // AUTO_INCREMENT
	bytes   bool // compared byte by byte
}

// The parts, in the order of the statements in each script.
const (
	lockPart = iota
	tokenPart
	fencePart
	partCount
)

func parts(d dialect, prefix string) [partCount]part {
	var all [partCount]part
	all[lockPart] = part{
		is: aTable, noun: "lock table", use: "a row for each lock that is held",
		layout:     d.layout(),
		key:        []string{lockKey, region},
		keyWhy:     "it is what lets only one owner in",
		hot:        expiredAfter,
		shortLived: true,
	}
	all[tokenPart] = d.tokenSource()
	all[tokenPart].noun, all[tokenPart].use = "token source", "fencing tokens come from it"
	all[fencePart] = part{
		is: aTable, noun: "fence table", use: "the highest token that has written to each resource",
		layout: []wanted{
			{name: resource, kind: text, size: 255, sign: true, bytes: true},
			{name: token, kind: integer, size: 64, sign: true, notNull: "no token is lower than NULL, so no write would be refused"},
		},
		key:    []string{resource},
		keyWhy: "one mark for each resource",
		hot:    token,
	}
	for i, name := range []string{vendor.Table(prefix), vendor.TokenSource(prefix), vendor.FenceTable(prefix)} {
		all[i].name = nameOf(name, prefix)
	}
	return all
}

// standard is the layout of the lock table; a dialect may see a type
// differently.
func standard() []wanted {
	return []wanted{
		{name: lockKey, kind: text, size: 36, sign: true},
		{name: region, kind: text, size: 100, sign: true},
		{name: clientID, kind: text, size: 36},
		{name: createdDate, kind: moment, size: 6},
		{name: expiredAfter, kind: moment, size: 6, notNull: "a lock without an end would never expire"},
		{name: attempt, kind: integer, size: 64, ours: true},
		{name: holder, kind: text, size: 255, ours: true},
		{name: lockName, kind: text, size: 255, ours: true},
	}
}

// tableName is the name of a table or sequence in its parts. All of them are
// plain identifiers, see vendor.CheckPrefix, so they go into SQL text as they
// are; a parameter would cost a second round trip, and fails behind poolers
// that change the connection between the two.
type tableName struct {
	sql    string // as written in statements
	schema string // empty if the prefix has none
	table  string
	prefix string
}

func nameOf(name, prefix string) tableName {
	n := tableName{sql: name, table: name, prefix: prefix}
	if schema, table, ok := strings.Cut(name, "."); ok {
		n.schema, n.table = schema, table
	}
	return n
}

// in is the name with a schema in front, unless there is one already.
func (n tableName) in(schema string) tableName {
	if schema != "" && n.schema == "" {
		n.sql = schema + "." + n.table
	}
	return n
}
