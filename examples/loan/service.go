package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/intlock/intlock/internal/opendb"
	"github.com/intlock/intlock/middleware"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// serviceEnv tells a process that it is the service: its config, as JSON. It is not
// an argument, as others see those, and the DSN has a password.
const serviceEnv = "LOAN_SERVICE"

type config struct {
	DSN, Table string
	Work       time.Duration
	NoLock     bool
}

// serviceMain is a process of the service. It prints its address, and ends when its
// standard input does.
func serviceMain(text string) int {
	if err := service(text); err != nil {
		fmt.Fprintf(os.Stderr, "loan service: %v\n", err)
		return 1
	}
	return 0
}

func service(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx := context.Background()
	db, err := opendb.Open(ctx, c.DSN, 16)
	if err != nil {
		return err
	}
	defer db.Close()

	repo, err := repository.New(ctx, db)
	if err != nil {
		return err
	}
	defer repo.Close()
	locks, err := registry.New(repo)
	if err != nil {
		return err
	}
	defer locks.Close(ctx)
	apply, err := middleware.New(locks, "loan.apply",
		middleware.WithRefusal("LOAN_IN_PROGRESS", "Your application is being processed."))
	if err != nil {
		return err
	}

	loans := &loans{db: db.DB, table: c.Table, work: c.Work, numbered: repo.Vendor() == "postgres"}
	var handler http.Handler = http.HandlerFunc(loans.apply)
	if !c.NoLock {
		handler = apply.HTTP(func(r *http.Request) (string, error) {
			user, class := applicant(r)
			return middleware.Key(user, class), nil
		}, nil)(handler)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Println(listener.Addr())
	io.Copy(io.Discard, os.Stdin)
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-ended; err != http.ErrServerClosed {
		return err
	}
	return nil
}

// applicant is who applies, and for what: in a real service authentication says the
// first.
func applicant(r *http.Request) (user, class string) {
	return r.FormValue("user"), r.FormValue("class")
}

// loans is the business. It is naive on purpose: it looks whether the user has the
// loan, decides, and writes, and nothing in the table refuses a second row. Alone it
// is right; two at once are not. (A real table would have a unique constraint too,
// as the last defence.)
type loans struct {
	db       *sql.DB
	table    string
	work     time.Duration
	numbered bool // parameters are $1, not ?
}

func (l *loans) apply(w http.ResponseWriter, r *http.Request) {
	user, class := applicant(r)
	made, err := l.lend(r.Context(), user, class)
	switch {
	case err != nil && strings.Contains(err.Error(), "locked"), err != nil && r.Context().Err() == nil:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case made:
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusOK) // there is one already
	}
}

// lend makes the loan unless there is one.
func (l *loans) lend(ctx context.Context, user, class string) (made bool, err error) {
	var n int
	if err := l.db.QueryRowContext(ctx, l.sql("SELECT COUNT(*) FROM {table} WHERE USER_NAME = ? AND CLASS = ?"), user, class).Scan(&n); err != nil {
		return false, err
	}
	if n > 0 {
		return false, nil
	}
	time.Sleep(l.work) // ask for the user's credit
	_, err = l.db.ExecContext(ctx, l.sql("INSERT INTO {table} (ID, USER_NAME, CLASS) VALUES (?, ?, ?)"), uuid.NewString(), user, class)
	return err == nil, err
}

func (l *loans) sql(text string) string {
	text = strings.Replace(text, "{table}", l.table, 1)
	for i := 1; l.numbered && strings.Contains(text, "?"); i++ {
		text = strings.Replace(text, "?", fmt.Sprint("$", i), 1)
	}
	return text
}
