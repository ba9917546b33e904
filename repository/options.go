package repository

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/intlock/intlock/internal/vendor"
)

// Option configures a repository. Options only set fields; New checks them all
// together before it touches the database.
type Option func(*config)

type config struct {
	prefix     string
	region     string
	clientID   string
	holder     string
	startCheck bool
	spring6    time.Duration // 0: Spring 7's layout
	tokens     bool
	plain      bool
	shedlock   string // the table of NewShedLock

	notify, asyncRelease bool

	insertQuery, updateQuery, renewQuery string // empty: ours
}

func newConfig(opts []Option) config {
	c := config{
		prefix:     vendor.DefaultPrefix,
		region:     "DEFAULT",
		clientID:   uuid.NewString(),
		holder:     defaultHolder(),
		startCheck: true,
	}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// WithPrefix sets the prefix of the table name, which is prefix + "LOCK".
// Letters, digits and underscores, optionally behind a schema name and a dot.
// Default: "INT_", as Spring's.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithRegion sets the region: a name space of keys within the table, so that
// several applications share it without sharing locks. 1 to 100 characters of
// A-Z a-z 0-9 _ . : -. Default: "DEFAULT", as Spring's.
func WithRegion(region string) Option { return func(c *config) { c.region = region } }

// WithClientID sets the CLIENT_ID written into the rows: 1 to 36 printable
// ASCII characters. It is a name, not a key: two repositories with the same id
// still exclude each other, and a restarted process does not inherit the locks
// of its former life. A Spring service takes every row that carries its id, so
// it must not share one with anybody. Default: a random UUID.
func WithClientID(id string) Option { return func(c *config) { c.clientID = id } }

// WithHolder sets the human-readable holder shown to whoever is refused and to
// operators, at most 200 bytes. Every user of the table can read it.
// Default: host name and process id, as in "web-3/4711".
func WithHolder(holder string) Option { return func(c *config) { c.holder = holder } }

// WithoutStartCheck lets New skip the look at the table's columns, and at what
// WithTokens needs, for programs that start before their table exists. Spring's
// name for the check is checkDatabaseOnStart.
func WithoutStartCheck() Option { return func(c *config) { c.startCheck = false } }

// WithSpring6Layout works on the table of Spring Integration 6.5 and older,
// which has no EXPIRED_AFTER: there a lock expires timeToLive after its
// CREATED_DATE, judged by each reader with its own timeToLive (Spring's
// default is 10 s). Give the value the Java services use. Leases of any length
// still work: a longer one is written as a CREATED_DATE in the future.
// A Spring 7 service must not use the same table.
func WithSpring6Layout(timeToLive time.Duration) Option {
	return func(c *config) {
		c.spring6 = timeToLive
		if timeToLive <= 0 {
			c.spring6 = -1 // refused by validate; 0 would mean "not chosen"
		}
	}
}

// WithInsertQuery replaces the INSERT that takes a free key; Spring's name is
// setInsertQuery. With a custom insert or update query, Acquire takes Spring's
// path of two statements: the update, and if it changed no row the insert. On
// MySQL and MariaDB the two may deadlock with those of other clients, which
// costs a retry (ErrTransient); the built-in statement does not.
//
// The text uses named parameters: :lock_key, :region, :client_id, :attempt and
// :ttl (an integer, microseconds) must occur; :holder and :lock_name may.
// Nothing else is replaced. The insert must change one row, or none when the
// key is held; a unique-key violation counts as held too.
func WithInsertQuery(query string) Option { return func(c *config) { c.insertQuery = query } }

// WithUpdateQuery replaces the UPDATE that takes over an expired key; Spring's
// name is setUpdateQuery. Parameters and consequences as WithInsertQuery. It
// must leave the row of another live owner alone, and must succeed again for
// the same client and attempt.
func WithUpdateQuery(query string) Option { return func(c *config) { c.updateQuery = query } }

// WithRenewQuery replaces the UPDATE that prolongs a lease; Spring's name is
// setRenewQuery. Parameters as WithInsertQuery. It must match client and
// attempt, must neither shorten a lease nor revive an expired one, and must
// change a row whenever it matches one. On MySQL and MariaDB an update to equal
// values counts as no change; a LAST_INSERT_ID(1) in the text, as in the
// default, says that a row was matched.
func WithRenewQuery(query string) Option { return func(c *config) { c.renewQuery = query } }

// WithTokens gives every grant a fencing token, in Outcome.Token: a number
// above those of all earlier grants of the key, in whatever way they ended.
// Package fencing refuses writes that come with an older one. The holder's
// repeated or nested calls are no new grant, nor is a renewal.
//
// Tokens rise, but not one by one, and are not comparable between keys. A Java
// service on the same table draws none, and takes none into account. Tokens
// are as safe as the database that deals them: not over a restored backup, a
// failover to an asynchronous standby, or a cluster that writes on several
// nodes.
//
// They need the token source that schema.Apply makes beside the table, and the
// right to use it; New checks both. They cost nothing more than a row written
// per grant on PostgreSQL and MariaDB, one more round trip per grant on MySQL,
// one more transaction per grant on SQLite, and with custom insert or update
// queries one more round trip everywhere. Refused attempts cost nothing.
// Default: no tokens, Outcome.Token is 0.
func WithTokens() Option { return func(c *config) { c.tokens = true } }

// WithNotify has a release wake those who wait for the key in other processes,
// if they listen: see package wakeup/pglisten and registry.WithWakeUp. A release
// of a key that nobody listens for sends nothing; it only asks whether somebody
// does, which costs some three microseconds of the server. PostgreSQL only: with
// other databases it does nothing, so that one program can serve them all.
// Give it to every process that shares the locks; whom one does not wake finds
// the lock free at its next poll. Default: off.
func WithNotify() Option { return func(c *config) { c.notify = true } }

// WithAsyncRelease has a release committed asynchronously: it does not wait until
// it is on the disk, nor on a synchronous standby, which makes it about a third
// cheaper, and is what lets a release notify without slowing others down.
// PostgreSQL only: with other databases it does nothing.
//
// Nothing is lost by it. If the server crashes within the next moment (three
// times wal_writer_delay, 0.6 s) the release may be undone: then the lease is
// there again and ends with its TTL. It never comes back over somebody else's,
// as the log is written in its order: whatever was granted durably after the
// release has made the release durable too. Grants and renewals are durable as
// ever. Default: off.
func WithAsyncRelease() Option { return func(c *config) { c.asyncRelease = true } }

// WithoutPreparedStatements sends each statement as one text with the values in
// it. It is for poolers that hand transactions to connections of the server as
// they like, such as pgbouncer in transaction mode: there a prepared statement is
// lost, or another one of the same name is run. It is still one round trip; on
// PostgreSQL the server then reads and plans the text each time, which makes it
// about a third slower.
//
// New recognises such a pooler on PostgreSQL, and so does the repository by the
// errors later on, so this is only needed where New may miss it: where the pooler
// is so busy that two connections in a row are two of the server. The *sql.DB, or
// what stands for it, needs its method Conn.
func WithoutPreparedStatements() Option { return func(c *config) { c.plain = true } }

var regionPattern = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

// customAcquire: Acquire takes the path of two statements.
func (c *config) customAcquire() bool { return c.insertQuery != "" || c.updateQuery != "" }

func (c *config) validate() error {
	if err := vendor.CheckPrefix(c.prefix); err != nil {
		return invalid("%w", err)
	}
	if !regionPattern.MatchString(c.region) {
		return invalid("region %s: want 1 to 100 characters of A-Z a-z 0-9 _ . : -", quote(c.region))
	}
	if err := checkIdentifier("client id", c.clientID); err != nil {
		return err
	}
	if len(c.holder) > maxHolder || !utf8.ValidString(c.holder) || strings.ContainsRune(c.holder, 0) {
		return invalid("holder %s: want at most %d bytes of UTF-8 without NUL", quote(c.holder), maxHolder)
	}
	if c.spring6 != 0 {
		if err := checkTTL(c.spring6); err != nil {
			return fmt.Errorf("timeToLive of the Spring 6 layout: %w", err)
		}
		if c.spring6%time.Millisecond != 0 {
			return invalid("timeToLive %v of the Spring 6 layout: Spring counts whole milliseconds", c.spring6)
		}
	}
	return nil
}

// maxText is the size of the HOLDER and LOCK_NAME columns; HOLDER has the
// client id in it too.
const (
	maxText   = 255
	maxHolder = 200
)

// holderText is what HOLDER says: who holds the lock, and which CLIENT_ID that
// is true for. A Spring service that takes an expired row over writes its own
// CLIENT_ID and leaves our columns as they are.
func (c *config) holderText() string { return c.holder + " [" + c.clientID + "]" }

// holderOf is the readable holder of a row, empty if HOLDER speaks of a client
// that is not the row's any more.
func holderOf(text, clientID string) string {
	if holder, ok := strings.CutSuffix(text, " ["+clientID+"]"); ok {
		return holder
	}
	return ""
}

// owner is a row's client and readable holder. CHAR(36) comes back padded with
// blanks.
func owner(clientID, holder string) (string, string) {
	clientID = strings.TrimRight(clientID, " ")
	return clientID, holderOf(holder, clientID)
}

// checkIdentifier guards what goes into a CHAR(36) column. Blanks at the ends
// are refused because CHAR ignores or strips them, other bytes because a
// column of ours is ASCII, and length because a database that cuts silently
// would make two owners one.
func checkIdentifier(what, s string) error {
	ok := len(s) >= 1 && len(s) <= 36 && s[0] != ' ' && s[len(s)-1] != ' '
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			ok = false
		}
	}
	if !ok {
		return invalid("%s %s: want 1 to 36 printable ASCII characters, no blank at either end", what, quote(s))
	}
	return nil
}

// CheckKey reports, with an error that matches ErrInvalid, a text that cannot
// be a LOCK_KEY: it takes 1 to 36 printable ASCII characters without a blank at
// either end. Every operation checks its key; who maps keys can do so before.
func CheckKey(key string) error { return checkIdentifier("key", key) }

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid("TTL %v: want at least %v and at most %v", ttl, MinTTL, MaxTTL)
	}
	return nil
}

// cleanName makes a lock's name storable: at most maxText bytes of valid UTF-8
// (a character cut in half goes too), no NUL, which Postgres refuses.
func cleanName(name string) string {
	name = strings.ReplaceAll(name, "\x00", "")
	if len(name) > maxText {
		name = name[:maxText]
	}
	return strings.ToValidUTF8(name, "")
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return strings.ToValidUTF8(fmt.Sprintf("%.180s/%d", host, os.Getpid()), "")
}

// quote shortens a bad value for an error text.
func quote(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%.60q... (%d bytes)", s, len(s))
	}
	return fmt.Sprintf("%q", s)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
