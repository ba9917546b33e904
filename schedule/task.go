package schedule

import (
	"errors"
	"fmt"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// Task says how a job is locked. The zero values of its fields mean the
// executor's default.
type Task struct {
	// Name is the name of the lock. Jobs of the same name exclude each other, in
	// whatever program. Anything but the empty text; on ShedLock's table at most 64
	// characters.
	Name string

	// LockAtMostFor is how long the lock is kept if the process ends without
	// giving it back, and without a keep-alive also how long the job may take.
	// It must be set here or for the executor.
	LockAtMostFor time.Duration

	// LockAtLeastFor is how long the lock is kept at least, counted from the
	// grant. At most LockAtMostFor. None where the executor has a default that
	// should not hold here.
	LockAtLeastFor time.Duration

	// KeepAlive says whether the lock is renewed while the job runs.
	KeepAlive KeepAlive
}

// None as a Task's LockAtLeastFor means no minimum, whatever the executor's is.
const None = time.Duration(-1 << 63)

// KeepAlive is a switch with a third position.
type KeepAlive int

const (
	KeepAliveDefault KeepAlive = iota // what WithKeepAlive says for the executor
	KeepAliveOn                       // renewed a third of LockAtMostFor after the grant, and so on
	KeepAliveOff                      // the job may take LockAtMostFor
)

// MinKeepAlive is the shortest LockAtMostFor with a keep-alive: a renewal, and a
// second one if the first fails, must find the time for their round trips.
// ShedLock wants 30 s, as it renews at half of the time and does not try again.
const MinKeepAlive = time.Second

// ErrTask is matched by errors about a Task or its durations.
var ErrTask = errors.New("schedule: invalid task")

// ParseTask is a Task from texts, as a configuration file has them: durations as
// ParseDuration reads them, blank for the executor's default. Errors match ErrTask.
func ParseTask(name, lockAtMostFor, lockAtLeastFor string) (Task, error) {
	t := Task{Name: name}
	for _, field := range []struct {
		name, text string
		to         *time.Duration
	}{{"LockAtMostFor", lockAtMostFor, &t.LockAtMostFor}, {"LockAtLeastFor", lockAtLeastFor, &t.LockAtLeastFor}} {
		if blank(field.text) {
			continue
		}
		d, err := ParseDuration(field.text)
		if err != nil {
			return Task{}, fmt.Errorf("%w %q: %s: %w", ErrTask, name, field.name, err)
		}
		if *field.to = d; d == 0 {
			*field.to = None // "0" is said on purpose
		}
	}
	return t, t.check()
}

// with fills in the executor's defaults.
func (t Task) with(defaults Task) Task {
	if t.LockAtMostFor == 0 {
		t.LockAtMostFor = defaults.LockAtMostFor
	}
	if t.LockAtLeastFor == 0 {
		t.LockAtLeastFor = defaults.LockAtLeastFor
	}
	if t.KeepAlive == KeepAliveDefault {
		t.KeepAlive = defaults.KeepAlive
	}
	return t
}

// least is the minimum.
func (t Task) least() time.Duration { return max(t.LockAtLeastFor, 0) }

// check finds what is wrong with the task by itself.
func (t Task) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrTask, t.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case t.Name == "":
		return bad("it has no name")
	case t.LockAtMostFor < 0:
		return bad("LockAtMostFor %v is negative", t.LockAtMostFor)
	case t.LockAtLeastFor < 0 && t.LockAtLeastFor != None:
		return bad("LockAtLeastFor %v is negative; schedule.None means no minimum", t.LockAtLeastFor)
	case t.LockAtMostFor > 0 && t.LockAtMostFor < repository.MinTTL, t.LockAtMostFor > repository.MaxTTL:
		return bad("LockAtMostFor %v: want at least %v and at most %v", t.LockAtMostFor, repository.MinTTL, repository.MaxTTL)
	case t.KeepAlive < KeepAliveDefault || t.KeepAlive > KeepAliveOff:
		return bad("KeepAlive %d: want KeepAliveOn or KeepAliveOff", t.KeepAlive)
	}
	return nil
}

// complete finds what is wrong with a task that has its defaults.
func (t Task) complete(locks *registry.JdbcLockRegistry) error {
	if err := t.check(); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrTask, t.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case t.LockAtMostFor == 0:
		return bad("it has no LockAtMostFor, nor has the executor: set one that is several times what the job takes, such as %v", 10*time.Minute)
	case t.least() > t.LockAtMostFor:
		return bad("LockAtLeastFor %v is longer than LockAtMostFor %v", t.LockAtLeastFor, t.LockAtMostFor)
	case t.KeepAlive == KeepAliveOn && t.LockAtMostFor < MinKeepAlive:
		return bad("LockAtMostFor %v is too short for a keep-alive: want at least %v", t.LockAtMostFor, MinKeepAlive)
	}
	if err := locks.CheckKey(t.Name); err != nil {
		return fmt.Errorf("%w %q: %w", ErrTask, t.Name, err)
	}
	return nil
}
