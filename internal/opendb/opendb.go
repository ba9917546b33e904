// Package opendb opens the database that a user names on a command line, with the
// driver for it. It is for the examples and the command, not for the library.
package opendb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"  // the driver "postgres"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Forms are the ways to name a database.
const Forms = `want one of
  postgres://user:password@host:5432/database
  mysql://user:password@host:3306/database    (MySQL and MariaDB)
  user:password@tcp(host:3306)/database       (the same)
  a path, sqlite:path or file:path            (SQLite)`

// driverFor tells the driver and its DSN from what the user typed. The errors
// of the DSN parsers are not passed on: they quote what they could not parse,
// password and all.
func driverFor(dsn string) (driver, driverDSN string, err error) {
	scheme, _, hasScheme := strings.Cut(dsn, "://")
	switch {
	case scheme == "postgres" && hasScheme, scheme == "postgresql" && hasScheme:
		if _, err := url.Parse(dsn); err != nil {
			return "", "", errors.New("-db: this postgres URL cannot be parsed; is a special character in the password not %-encoded?")
		}
		return "postgres", dsn, nil
	case (scheme == "mysql" || scheme == "mariadb") && hasScheme:
		driverDSN, err = mysqlDSN(dsn)
		return "mysql", driverDSN, err
	case strings.HasPrefix(dsn, "file:"), strings.HasPrefix(dsn, "sqlite:"):
		driverDSN, err = sqliteDSN(dsn)
		return "sqlite", driverDSN, err
	case !hasScheme && strings.ContainsAny(dsn, "@("):
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil || cfg.DBName == "" {
			return "", "", errors.New("-db: this is no MySQL or MariaDB DSN with a database name; " + Forms)
		}
		return "mysql", dsn, nil
	case hasScheme || strings.Contains(dsn, "=") || dsn == "":
		return "", "", errors.New("-db: unknown kind of database; " + Forms)
	}
	driverDSN, err = sqliteDSN(dsn)
	return "sqlite", driverDSN, err
}

// mysqlDSN makes the driver's DSN of a URL.
func mysqlDSN(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("-db: this MySQL URL cannot be parsed; is a special character in the password not %-encoded?")
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	if u.Port() == "" {
		cfg.Addr += ":3306"
	}
	if u.User != nil {
		cfg.User = u.User.Username()
		cfg.Passwd, _ = u.User.Password()
	}
	dsn := cfg.FormatDSN()
	if u.RawQuery != "" {
		if strings.Contains(dsn, "?") {
			dsn += "&" + u.RawQuery
		} else {
			dsn += "?" + u.RawQuery
		}
	}
	if parsed, err := mysql.ParseDSN(dsn); err != nil || parsed.DBName == "" {
		return "", errors.New("-db: this MySQL URL has no database name, or a parameter that the driver does not know; " + Forms)
	}
	return dsn, nil
}

// sqliteDSN adds what several processes on one file need, unless it is there.
func sqliteDSN(dsn string) (string, error) {
	path, isURI := strings.CutPrefix(dsn, "file:")
	rawQuery := ""
	if isURI {
		path, rawQuery, _ = strings.Cut(path, "?")
	} else {
		path = (&url.URL{Path: strings.TrimPrefix(path, "sqlite:")}).EscapedPath()
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return "", errors.New("-db: the parameters of this SQLite DSN cannot be parsed")
	}
	if path == "" || strings.Contains(path, ":memory:") || query.Get("mode") == "memory" {
		return "", errors.New("-db: SQLite needs a file here: processes cannot share memory")
	}
	have := strings.Join(query["_pragma"], " ")
	for _, pragma := range []string{
		"busy_timeout(10000)", // wait for the one place of the writer instead of failing
		"journal_mode(WAL)",   // readers do not block the writer
		"synchronous(NORMAL)", // no fsync per commit: safe against crashes of processes, which is what happens here
	} {
		name, _, _ := strings.Cut(pragma, "(")
		if !strings.Contains(have, name) {
			query.Add("_pragma", pragma)
		}
	}
	// A transaction that reads first and writes later cannot wait for another
	// writer, only fail; one that begins as a writer waits in the beginning.
	if query.Get("_txlock") == "" {
		query.Set("_txlock", "immediate")
	}
	return "file:" + path + "?" + query.Encode(), nil
}

// Open opens a pool and asks the database once, so that a wrong DSN fails here. Its
// errors speak of the flag -db and never show a password.
func Open(ctx context.Context, dsn string, connections int) (*sqlx.DB, error) {
	driver, driverDSN, err := driverFor(dsn)
	if err != nil {
		return nil, err
	}
	db, err := sqlx.Open(driver, driverDSN)
	if err != nil {
		return nil, errors.New("-db: " + redact(dsn, err.Error()))
	}
	// Waiting for a lock and holding one needs no connection, so the pool has
	// only to be as large as the work; idle ones are kept, or each statement
	// would open its own.
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("-db: cannot reach the %s database: %s", driver, redact(dsn, err.Error()))
	}
	return db, nil
}

var passwordPattern = regexp.MustCompile(`^(?:[a-z]+://)?[^:/@]*:(.+)@`)

// redact takes the password out of an error's text.
func redact(dsn, text string) string {
	text = strings.ReplaceAll(text, dsn, "(the DSN)")
	if found := passwordPattern.FindStringSubmatch(dsn); found != nil {
		text = strings.ReplaceAll(text, found[1], "***")
		if plain, err := url.PathUnescape(found[1]); err == nil {
			text = strings.ReplaceAll(text, plain, "***")
		}
	}
	return text
}
