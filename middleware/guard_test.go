package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/middleware"
	"github.com/intlock/intlock/registry"
)

func isUnavailable(err error) bool { return errors.Is(err, middleware.ErrUnavailable) }

// refusal is the error of a request that must be refused.
func refusal(t *testing.T, err error) *middleware.RefusedError {
	t.Helper()
	var refused *middleware.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, middleware.ErrRefused) || isUnavailable(err) {
		t.Fatalf("err = %v, want a refusal", err)
	}
	return refused
}

// inside runs f while a request with the key is under way.
func inside(t *testing.T, g *middleware.Guard, key string, f func(ctx context.Context)) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		_, err := middleware.Do(t.Context(), g, key, func(ctx context.Context) (int, error) { f(ctx); return 0, nil })
		if isUnavailable(err) && time.Since(begin) < 10*time.Second {
			continue
		}
		must(t, err)
		return
	}
}

func TestGuard(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		a, b := guard(t, db, "loan.apply"), guard(t, db, "loan.apply", middleware.WithRefusal("LOAN_BUSY", "One at a time, please."))

		t.Run("B1 different users and operations never conflict", func(t *testing.T) {
			other := guard(t, db, "loan.repay")
			inside(t, a, "user-1", func(context.Context) {
				must(t, try(t, b, "user-2"))
				must(t, try(t, other, "user-1"))
			})
		})
		t.Run("B2 B11 a second request is refused at once, with code, text and hint, and not told by whom", func(t *testing.T) {
			inside(t, a, "user-1", func(context.Context) {
				begin := time.Now()
				refused := refusal(t, try(t, b, "user-1"))
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
				if refused.Code != "LOAN_BUSY" || refused.Text != "One at a time, please." || refused.Error() != refused.Text {
					t.Errorf("%+v", refused)
				}
				if db.Vendor != vendor.MySQL && (refused.RetryAfter < 4*time.Minute || refused.RetryAfter > 5*time.Minute) { // MySQL does not say
					t.Errorf("retry after %v, want about five minutes", refused.RetryAfter)
				}
				if text := fmt.Sprintf("%v %+v %#v", refused, refused, refused); strings.Contains(text, "another") || errors.As(error(refused), new(*registry.NotAcquiredError)) {
					t.Errorf("it names the holder: %s", text)
				}
				same := refusal(t, try(t, a, "user-1")) // within one process too
				if same.Code != middleware.DefaultCode {
					t.Errorf("%+v", same)
				}
			})
			must(t, try(t, b, "user-1"))
		})
		t.Run("B4 given back after success, error and panic alike", func(t *testing.T) {
			must(t, try(t, a, "user-1"))
			must(t, try(t, b, "user-1"))
			failed := errors.New("no money")
			value, err := middleware.Do(t.Context(), a, "user-1", func(context.Context) (string, error) { return "half", failed })
			if err != failed || value != "half" {
				t.Errorf("%q, %v, want what the function returned", value, err)
			}
			must(t, try(t, b, "user-1"))
			func() {
				defer func() {
					if p := recover(); p != "boom" {
						t.Errorf("recovered %v", p)
					}
				}()
				middleware.Do(t.Context(), a, "user-1", func(context.Context) (int, error) { panic("boom") })
			}()
			must(t, try(t, b, "user-1"))
		})
		t.Run("B5 a refused request gives nothing back", func(t *testing.T) {
			inside(t, a, "user-1", func(context.Context) {
				for range 3 {
					refusal(t, try(t, b, "user-1"))
				}
			})
		})
		t.Run("B9 given back though the request was cancelled", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := middleware.Do(ctx, a, "user-9", func(ctx context.Context) (int, error) {
				cancel()
				<-ctx.Done()
				return 0, ctx.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v", err)
			}
			must(t, try(t, b, "user-9"))
			if _, err := middleware.Do(ctx, a, "user-9", func(context.Context) (int, error) { t.Error("it runs"); return 0, nil }); !errors.Is(err, context.Canceled) {
				t.Errorf("a request whose client has left: %v", err)
			}
		})
		t.Run("waiting instead of failing", func(t *testing.T) {
			patient := guard(t, db, "loan.apply", middleware.WithWait(20*time.Second))
			hasty := guard(t, db, "loan.apply", middleware.WithWait(50*time.Millisecond))
			done := make(chan error, 1)
			inside(t, a, "user-1", func(context.Context) {
				refusal(t, try(t, hasty, "user-1"))
				go func() { done <- try(t, patient, "user-1") }()
				time.Sleep(50 * time.Millisecond)
			})
			must(t, <-done)
		})
		t.Run("keys", func(t *testing.T) {
			for _, key := range []string{"", strings.Repeat("x", 1025)} {
				if _, err := middleware.Do(t.Context(), a, key, func(context.Context) (int, error) { t.Error("it runs"); return 0, nil }); !errors.Is(err, middleware.ErrKey) {
					t.Errorf("key of %d bytes: %v, want ErrKey", len(key), err)
				}
			}
			// A user whose name is a row's key does not get at that row.
			victim := registry.PathFor("loan.apply:user-1")
			inside(t, a, "user-1", func(context.Context) { must(t, try(t, b, victim)) })
			inside(t, a, strings.Repeat("é", 512), func(context.Context) {})
		})
	})
}

// B3 B6: a function that outlives the lock finds its context ended, its release
// does nothing, and its successor keeps the lock.
func TestOutlivesTTL(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		const ttl = 400 * time.Millisecond
		a, b := guard(t, db, "op", middleware.WithTTL(ttl)), guard(t, db, "op")
		first, release := make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			_, err := middleware.Do(context.Background(), a, "k", func(ctx context.Context) (int, error) {
				close(first)
				<-ctx.Done()
				ended <- context.Cause(ctx)
				<-release
				return 7, nil
			})
			ended <- err
		}()
		<-first
		if cause := <-ended; !errors.Is(cause, registry.ErrLockLost) {
			t.Errorf("cause %v, want ErrLockLost", cause)
		}
		var err error
		for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
			_, err = middleware.Do(t.Context(), b, "k", func(context.Context) (int, error) {
				close(release)
				if err := <-ended; err != nil { // the result is not masked
					t.Errorf("the first request's error is %v", err)
				}
				refusal(t, try(t, a, "k"))
				return 0, nil
			})
			if err == nil {
				break
			}
		}
		must(t, err)
	})
}

// A renewed lock lasts as long as the request.
func TestRenewal(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		a, b := guard(t, db, "op", middleware.WithTTL(time.Second), middleware.WithRenewal(true)), guard(t, db, "op")
		inside(t, a, "k", func(ctx context.Context) {
			time.Sleep(1500 * time.Millisecond)
			refusal(t, try(t, b, "k"))
			must(t, ctx.Err())
		})
	})
}

// B7: a quiet period after a success, and none after an error.
func TestKeepFor(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		const quietFor = 700 * time.Millisecond
		a, b := guard(t, db, "op", middleware.WithKeepFor(quietFor)), guard(t, db, "op")
		if _, err := middleware.Do(t.Context(), a, "k", func(context.Context) (int, error) { return 0, errors.New("failed") }); err == nil {
			t.Fatal("no error")
		}
		var begin time.Time
		inside(t, a, "k", func(context.Context) { begin = time.Now() })
		if time.Since(begin) < quietFor/2 {
			refusal(t, try(t, a, "k"))
			refusal(t, try(t, b, "k"))
		}
		for try(t, b, "k") != nil {
			if time.Since(begin) > 10*time.Second {
				t.Fatal("the quiet period does not end")
			}
			time.Sleep(5 * time.Millisecond)
		}
		if took := time.Since(begin); took < quietFor-10*time.Millisecond {
			t.Errorf("it was over after %v", took)
		}
	})
}

// B10: a database that is away is unavailable, not a repetition, and fails closed
// unless told otherwise.
func TestUnavailable(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		gone, err := sql.Open(db.Driver, db.DSN)
		must(t, err)
		broken := *db
		broken.DB = gone
		locks := locksOn(t, &broken)
		closed, err := middleware.New(locks, "op", middleware.WithLogger(quiet))
		must(t, err)
		opened, err := middleware.New(locks, "op", middleware.WithLogger(quiet), middleware.WithFailOpen(true))
		must(t, err)
		must(t, gone.Close())
		ran := 0
		f := func(context.Context) (int, error) { ran++; return ran, nil }
		if _, err := middleware.Do(t.Context(), closed, "k", f); !isUnavailable(err) || errors.Is(err, middleware.ErrRefused) || ran != 0 {
			t.Errorf("closed: %v, ran %d times", err, ran)
		}
		if v, err := middleware.Do(t.Context(), opened, "k", f); err != nil || v != 1 {
			t.Errorf("open: %v, %v", v, err)
		}
	})
}

// B10 on the network: the server cannot be reached, or does not answer.
func TestOutage(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		must(t, applied(t, db))
		proxy := db.Proxy(t) // not SQLite, which has no network
		through := db.Through(t, proxy)
		closed := guard(t, through, "op")
		opened := guard(t, through, "op", middleware.WithFailOpen(true))
		handler := closed.HTTP(userOf, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it runs") }))
		must(t, try(t, closed, "k"))
		proxy.Refuse()
		proxy.Cut()
		ran := 0
		f := func(context.Context) (int, error) { ran++; return ran, nil }
		if _, err := middleware.Do(t.Context(), closed, "k", f); !isUnavailable(err) || errors.Is(err, middleware.ErrRefused) || ran != 0 {
			t.Errorf("closed: %v, ran %d times", err, ran)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("User", "user")
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if v, err := middleware.Do(t.Context(), opened, "k", f); err != nil || v != 1 {
			t.Errorf("open: %v, %v", v, err)
		}
		proxy.Heal()
		must(t, try(t, closed, "k"))
	})
}

// Many duplicates at once, on several instances: of each key one at a time.
func TestOneAtATime(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		var at [3]atomic.Int32
		var passed, refused atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			g := guard(t, db, "op")
			for i := range 30 {
				wg.Go(func() {
					k := i % len(at)
					_, err := middleware.Do(t.Context(), g, fmt.Sprint(k), func(context.Context) (int, error) {
						if at[k].Add(1) > 1 {
							t.Error("two at once")
						}
						time.Sleep(10 * time.Millisecond)
						at[k].Add(-1)
						passed.Add(1)
						return 0, nil
					})
					if err != nil && !isUnavailable(err) {
						refusal(t, err)
						refused.Add(1)
					}
				})
			}
		}
		wg.Wait()
		if passed.Load() < int32(len(at)) || refused.Load() == 0 {
			t.Errorf("%d passed, %d refused", passed.Load(), refused.Load())
		}
	})
}

func TestKey(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{{"a", "b"}, {"a/b"}, {"a", "", "b"}, {"ab"}, {"a%2Fb"}, {"a", "b/"}, {"a b"}, {"a+b"}, {"a", "b", ""}} {
		key := middleware.Key(parts...)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q make the same key %q", parts, other, key)
		}
		seen[key] = parts
	}
}

func TestWrong(t *testing.T) {
	db := testdb.Open(t, vendor.SQLite)
	must(t, applied(t, db))
	locks := locksOn(t, db)
	for name, opts := range map[string][]middleware.Option{
		"TTL": {middleware.WithTTL(0)}, "wait": {middleware.WithWait(-1)}, "keep": {middleware.WithKeepFor(-1)},
		"code": {middleware.WithRefusal("", "x")}, "text": {middleware.WithRefusal("x", "")}, "logger": {middleware.WithLogger(nil)},
	} {
		if _, err := middleware.New(locks, "op", opts...); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := middleware.New(locks, ""); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("no operation: %v", err)
	}
	if _, err := middleware.New(nil, "op"); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("no registry: %v", err)
	}
}
