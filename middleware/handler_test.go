package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/middleware"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/schema"
)

func applied(t *testing.T, db *testdb.DB) error { return schema.Apply(t.Context(), db, "INT_") }

// userOf is the key of a request: the user's name.
func userOf(r *http.Request) (string, error) {
	switch user := r.Header.Get("User"); {
	case r.Method == http.MethodGet:
		return "", middleware.ErrSkip
	case user == "":
		return "", errors.New("who are you?")
	default:
		return middleware.Key(user), nil
	}
}

// answerOf is what a client got.
type answerOf struct {
	status, retry int
	code, message string
}

func post(t *testing.T, server *httptest.Server, method, user string) (a answerOf) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL, nil)
	must(t, err)
	req.Header.Set("User", user)
	resp, err := server.Client().Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	var texts map[string]string
	json.Unmarshal(body, &texts)
	a.status, a.code, a.message = resp.StatusCode, texts["code"], texts["message"]
	a.retry, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return a
}

func serve(t *testing.T, g *middleware.Guard, handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(g.HTTP(userOf, nil)(handler))
	t.Cleanup(server.Close)
	return server
}

func TestHTTP(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		busy, goOn := make(chan struct{}), make(chan struct{})
		slow := serve(t, guard(t, db, "op"), func(w http.ResponseWriter, r *http.Request) {
			if hold, ok := registry.HoldFromContext(r.Context()); r.Method != http.MethodGet && (!ok || !hold.Held()) {
				t.Error("the handler has no hold")
			}
			if r.Header.Get("User") == "slow" && r.Method != http.MethodGet {
				busy <- struct{}{}
				<-goOn
			}
			w.WriteHeader(http.StatusCreated)
		})
		other := serve(t, guard(t, db, "op"), func(http.ResponseWriter, *http.Request) {})
		first := make(chan answerOf, 1)
		go func() { first <- post(t, slow, http.MethodPost, "slow") }()
		<-busy
		got := post(t, other, http.MethodPost, "slow")
		if got.status != http.StatusConflict || got.code != middleware.DefaultCode || got.message != middleware.DefaultText || got.retry < 1 {
			t.Errorf("a repetition got %+v", got)
		}
		if db.Vendor != vendor.MySQL && (got.retry < 200 || got.retry > 300) {
			t.Errorf("retry after %d s, want about 300", got.retry)
		}
		if got := post(t, other, http.MethodPost, "fast"); got.status != http.StatusOK {
			t.Errorf("another user got %+v", got)
		}
		if got := post(t, slow, http.MethodGet, "slow"); got.status != http.StatusCreated {
			t.Errorf("a GET got %+v", got)
		}
		if got := post(t, other, http.MethodPost, ""); got.status != http.StatusBadRequest || got.retry != 0 {
			t.Errorf("nobody got %+v", got)
		}
		close(goOn)
		if got := <-first; got.status != http.StatusCreated {
			t.Errorf("the first got %+v", got)
		}
		if got := post(t, other, http.MethodPost, "slow"); got.status != http.StatusOK {
			t.Errorf("afterwards: %+v", got)
		}
	})
}

// A quiet period comes after a success only, and a panic gives the lock back.
func TestHTTPStatus(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		server := serve(t, guard(t, db, "op", middleware.WithKeepFor(time.Minute)), func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "done")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		})
		for _, s := range []int{http.StatusInternalServerError, http.StatusNotFound} {
			handler := guardHandler(t, db, s)
			for range 2 {
				g := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				r.Header.Set("User", "failing")
				handler.ServeHTTP(g, r)
				if g.Code != s {
					t.Errorf("status %d, want %d", g.Code, s)
				}
			}
		}
		if got := post(t, server, http.MethodPost, "user"); got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
		if got := post(t, server, http.MethodPost, "user"); got.status != http.StatusConflict {
			t.Errorf("in the quiet period: %+v", got)
		}
	})
}

func guardHandler(t *testing.T, db *testdb.DB, status int) http.Handler {
	return guard(t, db, "op", middleware.WithKeepFor(time.Minute)).HTTP(userOf, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
	}))
}

func TestHTTPPanic(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		g := guard(t, db, "op", middleware.WithKeepFor(time.Minute))
		handler := g.HTTP(userOf, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
		for range 2 { // it is given back, and not kept
			func() {
				defer func() {
					if p := recover(); p != "boom" {
						t.Errorf("recovered %v", p)
					}
				}()
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				r.Header.Set("User", "user")
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}()
		}
	})
}

// The application answers in its own way.
func TestHTTPAnswer(t *testing.T) {
	db := testdb.Open(t, vendor.SQLite)
	must(t, applied(t, db))
	g := guard(t, db, "op")
	handler := g.HTTP(userOf, func(w http.ResponseWriter, _ *http.Request, err error) {
		if errors.Is(err, middleware.ErrRefused) {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it runs") }))
	inside(t, g, middleware.Key("user"), func(context.Context) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("User", "user")
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("status %d", w.Code)
		}
	})
}

// serverInfo and handlerFunc stand for the types of gRPC, which are given to Unary
// in the module that has it.
type serverInfo struct{ FullMethod string }
type handlerFunc func(ctx context.Context, req any) (any, error)

func TestUnary(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		g := guard(t, db, "op")
		aborted, own := errors.New("status: aborted"), errors.New("status: not found")
		intercept := middleware.Unary[*serverInfo, handlerFunc](g, func(_ context.Context, req any, info *serverInfo) (string, error) {
			if info.FullMethod == "/loan/List" {
				return "", middleware.ErrSkip
			}
			return req.(string), nil
		}, func(err error) error {
			if errors.Is(err, middleware.ErrRefused) {
				return aborted
			}
			return err
		})
		apply, list := &serverInfo{"/loan/Apply"}, &serverInfo{"/loan/List"}
		inside(t, g, "user", func(context.Context) {
			if _, err := intercept(t.Context(), "user", apply, func(context.Context, any) (any, error) { t.Error("it runs"); return nil, nil }); err != aborted {
				t.Errorf("err = %v, want the application's status", err)
			}
			if resp, err := intercept(t.Context(), "user", list, func(context.Context, any) (any, error) { return "loans", nil }); resp != "loans" || err != nil {
				t.Errorf("%v, %v", resp, err)
			}
		})
		resp, err := intercept(t.Context(), "user", apply, func(_ context.Context, req any) (any, error) { return "loan of " + req.(string), own })
		if resp != "loan of user" || err != own {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

func TestWrap(t *testing.T) {
	db := testdb.Open(t, vendor.SQLite)
	must(t, applied(t, db))
	g := guard(t, db, "op")
	type request struct{ user string }
	apply := middleware.Wrap(g, func(_ context.Context, r request) (string, error) {
		if r.user == "root" {
			return "", middleware.ErrSkip
		}
		return r.user, nil
	}, func(_ context.Context, r request) (string, error) { return "loan of " + r.user, nil })
	inside(t, g, "user", func(ctx context.Context) {
		if _, err := apply(t.Context(), request{"user"}); !errors.Is(err, middleware.ErrRefused) {
			t.Errorf("err = %v, want a refusal", err)
		}
		if got, err := apply(t.Context(), request{"root"}); err != nil || got != "loan of root" {
			t.Errorf("%q, %v", got, err)
		}
	})
	if got, err := apply(t.Context(), request{"user"}); err != nil || got != "loan of user" {
		t.Errorf("%q, %v", got, err)
	}
}
