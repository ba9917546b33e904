package schedule

// Kind says what an Event is about.
type Kind int

// A run that is executed tells Attempt, Acquired, Started, Finished and Released, in
// this order. A task within itself tells another Started and Finished in between.
const (
	Attempt     Kind = iota + 1 // a lock is asked for
	Acquired                    // it was granted; Token is set if there are tokens
	NotAcquired                 // it is held; Result says by whom
	Failed                      // it could not be asked for; Err says why
	Started                     // the job begins
	Finished                    // the job has ended; Err is its error, Result.Took how long it took
	Released                    // the lock was given back; Err, if not, and if it was lost: the job took too long
)

func (k Kind) String() string {
	names := []string{"", "attempt", "acquired", "not acquired", "failed", "started", "finished", "released"}
	if k < Attempt || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Event is something that happened to a task: for metrics and traces. It is
// ShedLock's LockingTaskExecutorListener, with the failures.
type Event struct {
	Kind   Kind
	Task   Task // with the executor's defaults
	Result Result
	Token  int64
	Err    error
}

func (e *Executor) tell(event Event) {
	if e.onEvent == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			e.logger.Error("the handler of an event panicked", "task", event.Task.Name, "event", event.Kind.String(), "panic", p)
		}
	}()
	e.onEvent(event)
}
