package vendor

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/lib/pq"
)

// TestScrub: the ways in which drivers quote a DSN they cannot use.
func TestScrub(t *testing.T) {
	for _, text := range []string{
		`parse "postgres://user:canary@host:x/db": invalid port ":x" after host`,
		`parse "postgres://user:ca nary@host/db": net/url: invalid character " " in host name`,
		`parse "postgres://user:ca/nary@host/db": invalid port ":ca" after host`,
		`parse "postgres://user:ca\"nary@host/db": x`,
		"dial user:canary@tcp(127.0.0.1:3306)/db: refused",
		"user:ca@nary@tcp(h)/db",
		"user:canary@unix(/tmp/my.sock)/db",
		"host=h password=canary user=u",
		"host=h password = canary user=u",
		"host=h PASSWORD='ca nary' user=u",
		`host=h password='ca\'nary' user=u`,
		"server=h;pwd=canary;x=y",
		"mysql://u:canary@h/db?password=canary&x=1",
	} {
		got := Scrub(text)
		for _, leak := range []string{"canary", "nary", `":ca"`, "user:ca"} {
			if strings.Contains(got, leak) {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
	if got := Scrub(`pq: relation "int_lock" does not exist`); got != `pq: relation "int_lock" does not exist` {
		t.Errorf("an innocent text became %q", got)
	}
}

// TestDetectKeepsPasswords: the first connection is where a DSN is parsed, and
// the error of one that does not parse quotes it.
func TestDetectKeepsPasswords(t *testing.T) {
	for _, dsn := range []string{
		"postgres://user:canary@127.0.0.1:bad/db", "postgres://user:canary x@127.0.0.1/db", "postgres://user@127.0.0.1:canary@/db",
	} {
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			t.Fatalf("the driver refuses it before anybody asks: %v", err)
		}
		defer db.Close()
		if _, err := Detect(t.Context(), db); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("Detect: %v", err)
		}
	}
}
