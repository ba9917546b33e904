package plugin

import (
	"context"
	"errors"

	"github.com/intlock/intlock/leader"
)

// ErrNotLeader is Elector's answer where another process leads.
var ErrNotLeader = errors.New("plugin: not the leader")

// Elector is gocron's Elector: jobs run on the leader only.
type Elector struct{ *leader.Elector }

// IsLeader implements gocron.Elector. It asks no database.
func (e Elector) IsLeader(context.Context) error {
	if e.Elector.IsLeader() {
		return nil
	}
	return ErrNotLeader
}

// Actor makes the two functions of an oklog/run actor of one that runs until its
// context ends, such as leader.Elector.Run.
func Actor(run func(context.Context) error) (execute func() error, interrupt func(error)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	return func() error { return run(ctx) }, func(err error) { cancel(err) }
}

// Hooks makes the OnStart and OnStop of an fx.Hook of a function that runs until its
// context ends, such as leader.Elector.Run. OnStart does not wait for it; if it
// fails by itself, failed is called with the error (shut the application down),
// unless it is nil. OnStop ends it and waits, as long as its own context lasts.
func Hooks(run func(context.Context) error, failed func(error)) (onStart, onStop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	onStart = func(context.Context) error {
		go func() {
			err := run(ctx)
			if err != nil && ctx.Err() == nil && failed != nil {
				failed(err)
			}
			ended <- err
		}()
		return nil
	}
	onStop = func(stop context.Context) error {
		cancel()
		select {
		case err := <-ended:
			ended <- err // for another OnStop
			return err
		case <-stop.Done():
			return context.Cause(stop)
		}
	}
	return onStart, onStop
}
