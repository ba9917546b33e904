package middleware

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"
)

// HTTP returns the guard as middleware for net/http. key finds the key of a request,
// such as the user's id that authentication has put into its context; ErrSkip lets a
// request pass without a lock, as a GET should.
//
// The handler's request has a context that ends when the lock is lost. A response
// below 400 is a success, see WithKeepFor. A request that does not reach the handler
// is answered by answer, or if that is nil by Answer.
func (g *Guard) HTTP(key func(*http.Request) (string, error), answer func(http.ResponseWriter, *http.Request, error)) func(http.Handler) http.Handler {
	if answer == nil {
		answer = Answer
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k, err := key(r)
			if err == ErrSkip {
				next.ServeHTTP(w, r)
				return
			}
			if err != nil && !errors.Is(err, ErrKey) {
				err = errors.Join(ErrKey, err)
			}
			if err != nil {
				answer(w, r, err)
				return
			}
			inside, leave, err := g.enter(r.Context(), k)
			if err != nil {
				answer(w, r, err)
				return
			}
			seen := &statusWriter{ResponseWriter: w}
			success := false
			defer func() { leave(success) }() // also if the handler panics
			next.ServeHTTP(seen, r.WithContext(inside))
			success = seen.status < http.StatusBadRequest
		})
	}
}

// Answer is how HTTP answers a request that does not reach the handler: 409 for a
// refusal and 503 while the database does not answer, with Retry-After, and 400
// without a key. The body is JSON, {"code": ..., "message": ...}, with nothing in it
// that is not for the client. If the client has left it answers nothing.
func Answer(w http.ResponseWriter, r *http.Request, err error) {
	status, code, text := http.StatusServiceUnavailable, "UNAVAILABLE", "The service is not available. Please try again."
	retry := time.Second
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		status, code, text, retry = http.StatusConflict, refused.Code, refused.Text, refused.RetryAfter
	case errors.Is(err, ErrKey):
		status, code, text, retry = http.StatusBadRequest, "BAD_REQUEST", "The request does not say what it is about.", 0
	case r.Context().Err() != nil:
		return
	}
	h := w.Header()
	if retry > 0 || status == http.StatusConflict {
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(retry.Seconds())))))
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"code": code, "message": text})
}

// statusWriter remembers the status. http.ResponseController finds what else the
// writer can do by Unwrap.
type statusWriter struct {
	http.ResponseWriter
	status int // 0 until it is written, which is as good as 200
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status < http.StatusOK { // 1xx may come before
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status < http.StatusOK {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which many handlers ask for directly.
func (w *statusWriter) Flush() { http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
