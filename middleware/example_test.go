package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/intlock/intlock/middleware"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

func ExampleDo() {
	repo, _ := repository.NewMemory(nil) // on a database: repository.New
	locks, _ := registry.New(repo)
	apply, err := middleware.New(locks, "loan.apply")
	if err != nil {
		panic(err)
	}
	ctx, key := context.Background(), middleware.Key("alice", "car")

	loan, err := middleware.Do(ctx, apply, key, func(ctx context.Context) (string, error) {
		_, err := middleware.Do(context.Background(), apply, key, func(context.Context) (string, error) {
			return "a second loan", nil
		})
		fmt.Println("the second click:", errors.Is(err, middleware.ErrRefused))
		return "a loan", nil
	})
	fmt.Println(loan, err)
	// Output:
	// the second click: true
	// a loan <nil>
}

func ExampleGuard_HTTP() {
	repo, _ := repository.NewMemory(nil)
	locks, _ := registry.New(repo)
	apply, err := middleware.New(locks, "loan.apply", middleware.WithRefusal("LOAN_BUSY", "Your application is being processed."))
	if err != nil {
		panic(err)
	}
	user := func(r *http.Request) (string, error) { return r.Header.Get("User"), nil } // after authentication
	var handler http.Handler
	send := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/loans", nil)
		r.Header.Set("User", "alice")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	again := true
	handler = apply.HTTP(user, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if again {
			again = false
			w := send()
			fmt.Print("while it runs: ", w.Code, " ", w.Body)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	fmt.Println("the first:", send().Code)
	// Output:
	// while it runs: 409 {"code":"LOAN_BUSY","message":"Your application is being processed."}
	// the first: 201
}
