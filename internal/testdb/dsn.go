package testdb

import (
	"errors"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"  // the driver "postgres"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/intlock/intlock/internal/vendor"
)

var (
	errPostgresDSN = errors.New("want a URL, such as " + examples[vendor.Postgres])
	errMySQLDSN    = errors.New("want go-sql-driver's form, such as " + examples[vendor.MySQL])
)

// checkDSN accepts the one form per vendor that the rest of this file can
// change. The parser's own message is dropped: it quotes the DSN.
func checkDSN(name, dsn string) error {
	if name == vendor.Postgres {
		_, err := parseURL(dsn)
		return err
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return errMySQLDSN
	}
	return nil
}

func parseURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errPostgresDSN
	}
	return u, nil
}

// sqliteDSN asks for what an application with several connections needs: WAL,
// so that readers do not block the writer, and a wait for the write lock.
func sqliteDSN(file string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath()}
	u.RawQuery = url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)"}}.Encode()
	return u.String()
}

// withDatabase is the server's DSN with another database.
func (s *server) withDatabase(name string) string {
	if s.driver == "postgres" {
		u, _ := parseURL(s.dsn) // checked when the server was found
		u.Path = "/" + name
		return u.String()
	}
	cfg, _ := mysql.ParseDSN(s.dsn)
	cfg.DBName = name
	return cfg.FormatDSN()
}

func withParams(name, dsn string, params map[string]string) (string, error) {
	switch name {
	case vendor.Postgres:
		u, err := parseURL(dsn)
		if err != nil {
			return "", err
		}
		query := u.Query()
		for key, value := range params {
			query.Set(key, value)
		}
		u.RawQuery = query.Encode()
		return u.String(), nil
	case vendor.SQLite:
		return withSQLiteParams(dsn, params)
	}
	// ParseDSN takes the last of two equal parameters, and FormatDSN writes
	// it once.
	separator := "?"
	if strings.Contains(dsn[strings.LastIndex(dsn, "/")+1:], "?") {
		separator = "&"
	}
	for key, value := range params {
		dsn += separator + key + "=" + url.QueryEscape(value)
		separator = "&"
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", errMySQLDSN
	}
	return cfg.FormatDSN(), nil
}

// withSQLiteParams knows that _pragma may occur many times: it replaces the
// pragma of the same name and leaves the others.
func withSQLiteParams(dsn string, params map[string]string) (string, error) {
	path, rawQuery, _ := strings.Cut(dsn, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return "", err
	}
	for key, value := range params {
		if key != "_pragma" {
			query.Set(key, value)
			continue
		}
		kept := []string{value}
		for _, old := range query[key] {
			if pragmaName(old) != pragmaName(value) {
				kept = append(kept, old)
			}
		}
		query[key] = kept
	}
	return path + "?" + query.Encode(), nil
}

// pragmaName is "busy_timeout" of "busy_timeout(5000)" and "busy_timeout=5000".
func pragmaName(pragma string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(pragma, "=", "("), "(")
	return strings.ToLower(strings.TrimSpace(name))
}
