package registry

import (
	"cmp"
	"context"
	"time"
)

// streak is how long this process has had a key to itself. A process whose
// goroutines queue for a key takes the row again the moment it has given it
// back, and other processes, which look once per idle pause, might never find
// it free. So a process that has gone on for a while steps back for a little
// longer than such a pause: whoever waits elsewhere gets its turn.
//
// Nobody knows whether anyone waits elsewhere. A step back that nobody used
// makes the next one come later, so that a process alone pays next to nothing;
// the sight of another holder brings them back to the start.
//
// The fields belong to the goroutine that has the local turn.
type streak struct {
	since time.Time     // when it began
	freed time.Time     // when this process last gave the row back
	limit time.Duration // how long it may go on; 0: not decided yet
}

// streaks are how long a streak lasts before a step back.
type streaks struct {
	first   time.Duration // as long as nothing is known
	shared  time.Duration // once another process was seen
	longest time.Duration // as each step back that nobody used doubles it
}

// How long others need at most to take a row once they are woken.
const wokenPause = 4 * time.Millisecond

// streaks are counted in pauses. Without a wake-up, and with Spring's 100 ms
// between tries, the first lasts about a second, and a process alone gives away
// one part in 64 in the end. With one a step back is short: they can come sooner.
func (r *JdbcLockRegistry) streaks() streaks {
	pause := r.stepBackPause()
	if pause <= wokenPause {
		return streaks{25 * pause, 25 * pause, 64 * pause}
	}
	return streaks{8 * pause, 2 * pause, 64 * pause}
}

// stepBack pauses if the streak has been long enough, and reports whether it
// did. It does not where the call has no time for it.
func (s *streak) stepBack(ctx context.Context, r *JdbcLockRegistry, c call, start, now time.Time) bool {
	if s.freed.IsZero() {
		return false
	}
	if now.Sub(s.freed) > r.config.idle {
		s.since = now // it was free long enough for anybody to find it
		return false
	}
	if !s.over(r, now) {
		return false
	}
	pause := r.stepBackPause()
	if c.wait >= 0 && c.wait-now.Sub(start) < 2*pause {
		return false
	}
	if end, ok := ctx.Deadline(); ok && end.Sub(now) < 2*pause {
		return false
	}
	r.sleep(ctx, pause)
	s.since = time.Now()
	return true
}

// over reports whether it is time to let others have the row.
func (s *streak) over(r *JdbcLockRegistry, now time.Time) bool {
	return !s.since.IsZero() && now.Sub(s.since) >= cmp.Or(s.limit, r.streaks().first)
}

// stepBackPause is longer than others need to see that the row is free: than
// their longest pause, or than it takes to wake them.
func (r *JdbcLockRegistry) stepBackPause() time.Duration {
	if r.config.wakeUp != nil && r.config.wakeUp.Alive() {
		return min(wokenPause, r.config.idle)
	}
	return r.config.idle + r.config.idle/4
}

// granted: this process has the row, after a step back nobody took it if
// steppedBack is set.
func (s *streak) granted(r *JdbcLockRegistry, steppedBack bool, now time.Time) {
	if s.since.IsZero() {
		s.since = now
	}
	if steppedBack {
		all := r.streaks()
		s.limit = min(2*cmp.Or(s.limit, all.first), all.longest)
	}
}

// broken: another process has the row.
func (s *streak) broken(r *JdbcLockRegistry) {
	s.since, s.limit = time.Time{}, r.streaks().shared
}
