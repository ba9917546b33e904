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

// How long a streak lasts before a step back, counted in pauses: at first, and
// with Spring's 100 ms between tries that is about a second; once another
// process was seen; and, as each step back that nobody used doubles it, at
// most. A process alone gives away one part in 64 in the end.
const firstStreak, sharedStreak, longestStreak = 8, 2, 64

// stepBack pauses if the streak has been long enough, and reports whether it
// did. It does not where the call has no time for it.
func (s *streak) stepBack(ctx context.Context, r *JdbcLockRegistry, c call, start time.Time) bool {
	now := time.Now()
	if now.Sub(s.freed) > r.config.idle {
		s.since = now // it was free long enough for anybody to find it
		return false
	}
	pause := r.stepBackPause()
	if s.since.IsZero() || now.Sub(s.since) < cmp.Or(s.limit, firstStreak*pause) {
		return false
	}
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

// stepBackPause is longer than the longest pause of those who wait elsewhere.
func (r *JdbcLockRegistry) stepBackPause() time.Duration { return r.config.idle + r.config.idle/4 }

// granted: this process has the row, after a step back nobody took it if
// steppedBack is set.
func (s *streak) granted(r *JdbcLockRegistry, steppedBack bool) {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if steppedBack {
		pause := r.stepBackPause()
		s.limit = min(2*cmp.Or(s.limit, firstStreak*pause), longestStreak*pause)
	}
}

// broken: another process has the row.
func (s *streak) broken(r *JdbcLockRegistry) {
	s.since, s.limit = time.Time{}, sharedStreak*r.stepBackPause()
}
