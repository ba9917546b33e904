package pglisten

import (
	"fmt"
	"testing"
	"time"

	"github.com/lib/pq"
)

func settings(c pq.Config) string {
	return fmt.Sprintf("%q %d %v %q %q %q %q %q", c.Host, c.Port, c.Multi, c.User, c.Password, c.Database, c.ApplicationName, c.SSLMode)
}

// Every way to write a DSN is given a limit, and keeps the one that it has.
func TestBounded(t *testing.T) {
	for dsn, want := range map[string]time.Duration{
		"":                               answerTime,
		"postgres://app:s%3Fcret@db/app": answerTime,
		"postgresql://app@db/app?sslmode=disable": answerTime,
		"postgres://app@db/app?":                  answerTime,
		"postgres://app@one:5432,two:5433/app":    answerTime,
		"postgres://app@db/app?connect_timeout=3": 3 * time.Second,
		"host=db password='a ?b' user=app":        answerTime,
		`host=db password=a\\`:                    answerTime,
		"host=db application_name=x://y":          answerTime,
		"host=db connect_timeout=7":               7 * time.Second,
		"host=db connect_timeout=0":               answerTime,
	} {
		before, err := pq.NewConfig(dsn)
		if err != nil {
			t.Fatalf("%q: %v", dsn, err)
		}
		got, err := bounded(dsn)
		if err != nil {
			t.Fatalf("%q: %v", dsn, err)
		}
		after, err := pq.NewConfig(got)
		if err != nil || after.ConnectTimeout != want {
			t.Errorf("%q became %q: %v, %v, want %v", dsn, got, after.ConnectTimeout, err, want)
		}
		if settings(before) != settings(after) {
			t.Errorf("%q became %q: %s, want %s", dsn, got, settings(after), settings(before))
		}
	}
}
