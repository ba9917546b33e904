package repository

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata/*.sql")

// TestGolden shows a reader, and a DBA, every statement each vendor gets.
func TestGolden(t *testing.T) {
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, spring6 := range []time.Duration{0, 10 * time.Second} {
				c := newConfig([]Option{WithClientID("c")})
				layout := "Spring 7"
				if c.spring6 = spring6; spring6 > 0 {
					layout = "Spring 6.5 and older, timeToLive 10 s"
				}
				shown := make(map[string]bool)
				show := func() *DefaultLockRepository {
					r := &DefaultLockRepository{config: c, dialect: d}
					if err := r.compile(); err != nil {
						t.Fatal(err)
					}
					for _, s := range r.statements() {
						if s.size <= 1 && !shown[s.bound] { // larger batches only have longer lists
							shown[s.bound] = true
							fmt.Fprintf(&b, "\n-- %s (%s)\n%s;\n", s.op, strings.Join(s.names, ", "), s.bound)
						}
					}
					return r
				}
				fmt.Fprintf(&b, "-- Layout of %s\n", layout)
				r := show()
				b.WriteString("\n-- With tokens, where that differs. What draws a token alone follows a grant\n-- where acquire cannot, and after custom queries.\n")
				c.tokens, c.insertQuery = true, r.InsertQuery()
				show()
				b.WriteString("\n")
			}
			file := "testdata/" + name + ".sql"
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("%s differs from the statements; look at them, then run: go test ./repository -run Golden -update", file)
			}
		})
	}
}
