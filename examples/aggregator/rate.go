package main

import "time"

// rate is a speed, over the last second or two.
type rate struct {
	at0, at1 time.Time
	n0, n1   int
}

func (r *rate) at(now time.Time, n int) float64 {
	if r.at0.IsZero() {
		r.at0, r.at1, r.n0, r.n1 = now, now, n, n
	}
	if now.Sub(r.at1) > time.Second {
		r.at0, r.n0, r.at1, r.n1 = r.at1, r.n1, now, n
	}
	if d := now.Sub(r.at0).Seconds(); d > 0 {
		return float64(n-r.n0) / d
	}
	return 0
}
