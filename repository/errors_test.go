package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

// TestClasses pins what each error of the real drivers means: by their types,
// as the code looks at methods and fields only.
func TestClasses(t *testing.T) {
	pg := func(state string) error { return &pq.Error{Code: pqerror.Code(state), Message: "m"} }
	my := func(number uint16) error { return &mysqldriver.MySQLError{Number: number, Message: "m"} }
	for _, c := range []struct {
		vendor string
		err    error
		want   class
	}{
		{vendor.Postgres, pg("40001"), refused},  // serialization failure
		{vendor.Postgres, pg("40P01"), refused},  // deadlock
		{vendor.Postgres, pg("40003"), doubtful}, // it does not know itself
		{vendor.Postgres, pg("55P03"), refused},  // lock timeout
		{vendor.Postgres, pg("57014"), refused},  // cancelled, statement timeout
		{vendor.Postgres, pg("57P01"), doubtful}, // the server shuts down
		{vendor.Postgres, pg("57P03"), doubtful}, // it starts up
		{vendor.Postgres, pg("08006"), doubtful}, // connection failure
		{vendor.Postgres, pg("08P01"), permanent},
		{vendor.Postgres, pg("53300"), refused}, // too many connections
		{vendor.Postgres, pg("26000"), refused}, // unknown prepared statement
		{vendor.Postgres, &pq.Error{Code: "0A000", Message: "cached plan must not change result type"}, refused},
		{vendor.Postgres, pg("0A000"), permanent},
		{vendor.Postgres, pg("42P05"), refused},   // a pooler that mixes up statements: texts from now on
		{vendor.Postgres, pg("42P01"), permanent}, // no table
		{vendor.Postgres, pg("42501"), permanent}, // no right
		{vendor.Postgres, pg("23505"), permanent}, // duplicate key
		{vendor.Postgres, pg("25006"), permanent}, // read-only

		{vendor.MySQL, my(1213), refused},
		{vendor.MySQL, my(1205), refused},
		{vendor.MariaDB, my(1020), refused},
		{vendor.MySQL, my(1040), refused},
		{vendor.MySQL, my(1317), doubtful},
		{vendor.MySQL, my(1053), doubtful},
		{vendor.MySQL, my(1146), permanent},
		{vendor.MySQL, my(1062), permanent},
		{vendor.MySQL, my(1290), permanent},
		{vendor.MySQL, mysqldriver.ErrInvalidConn, doubtful},
		{vendor.MySQL, errors.Join(errors.New("span"), my(1213)), refused},
		{vendor.MySQL, fmt.Errorf("span %w, and %w", io.ErrClosedPipe, my(1213)), refused},

		{vendor.Postgres, driver.ErrBadConn, doubtful},
		{vendor.Postgres, io.EOF, doubtful},
		{vendor.Postgres, context.DeadlineExceeded, doubtful},
		{vendor.Postgres, context.Canceled, doubtful},
		{vendor.Postgres, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, doubtful},
		{vendor.Postgres, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, refused},
		{vendor.Postgres, errors.New("sql: statement is closed"), refused},
		{vendor.Postgres, errors.New("anything else"), permanent},
		// The last run was refused, or never sent; an earlier one may have been executed.
		{vendor.Postgres, &sentError{1, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, doubtful},
		{vendor.Postgres, &sentError{2, pg("40001")}, doubtful},
		{vendor.Postgres, &sentError{1, pg("40001")}, refused},
		{vendor.Postgres, &sentError{1, pg("42P01")}, permanent},
		{"", pg("57P03"), doubtful}, // before the server said what it is
		{"", my(1040), refused},
	} {
		r := &DefaultLockRepository{db: &store{Pool: new(sql.DB)}, dialect: dialects()[c.vendor]}
		for _, err := range []error{c.err, fmt.Errorf("traced: %w", c.err)} {
			got := r.wrap("test", err)
			if e := got.(*opError); e.class != c.want {
				t.Errorf("%s: %v is of class %d, want %d", c.vendor, err, e.class, c.want)
			}
			if errors.Is(got, ErrTransient) != (c.want != permanent) || errors.Is(got, ErrNotExecuted) != (c.want == refused) {
				t.Errorf("%v matches ErrTransient %v, ErrNotExecuted %v", got, errors.Is(got, ErrTransient), errors.Is(got, ErrNotExecuted))
			}
		}
	}
	for _, err := range []error{pg("23505"), my(1062), fmt.Errorf("x: %w", my(1062))} {
		if !duplicateKey(err) {
			t.Errorf("%v is not seen as a duplicate key", err)
		}
	}
}

func TestRoundUp(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{
		time.Millisecond: 1000, time.Millisecond + 1: 1001, time.Second: 1_000_000, time.Second + 999: 1_000_001,
	} {
		if got := roundUp(ttl); got != want {
			t.Errorf("roundUp(%d ns) = %d µs, want %d", ttl, got, want)
		}
	}
}

// TestCloseFreesStatements: Close leaves nothing prepared on the server.
func TestCloseFreesStatements(t *testing.T) {
	db := testdb.Open(t, vendor.MySQL)
	db.SetMaxOpenConns(1)
	r := open(t, db)
	count := func() (n int) {
		t.Helper()
		var name string
		if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := r.Delete(t.Context(), take(t, r, "k")); err != nil {
		t.Fatal(err)
	}
	open := count()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// The server is shared with other tests: what counts is that ours went.
	for start := time.Now(); count() > open-2; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 5*time.Second {
			t.Fatalf("%d statements are prepared, before Close it was %d", count(), open)
		}
	}
}

// TestStatementLost: something on the connection's way threw away what was
// prepared. One call fails and says that it had no effect, the next works.
func TestStatementLost(t *testing.T) {
	db := testdb.Open(t, vendor.Postgres)
	db.SetMaxOpenConns(1)
	r := open(t, db)
	if _, err := r.Delete(t.Context(), take(t, r, "k")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DEALLOCATE ALL"); err != nil {
		t.Fatal(err)
	}
	req := Request{Key: "k", Attempt: NewAttempt(), TTL: time.Minute}
	if out, err := r.Acquire(t.Context(), req); !errors.Is(err, ErrNotExecuted) {
		t.Errorf("Acquire = %+v, %v, want ErrNotExecuted", out, err)
	}
	if out, err := r.Acquire(t.Context(), req); err != nil || !out.Acquired {
		t.Errorf("Acquire again = %+v, %v", out, err)
	}
}
