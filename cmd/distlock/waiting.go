package main

import (
	"context"
	"fmt"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// Whoever waits is told why after tellAfter, and again when that has changed, every tellEvery at
// most.
const (
	tellAfter = time.Second
	tellEvery = 10 * time.Second
)

// tellWaiting says what the acquisition waits for, if there is a terminal to say it on, until the
// returned function is called. It costs a connection of its own, and one look every tellEvery.
func (r *runner) tellWaiting(ctx context.Context, m *distlock.Manager, s stdio) (stop func()) {
	if !r.verbose && !isTerminal(s.errOut) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with stop, which waits for it
		defer close(done)
		watch := clock.System()
		said := ""
		for pause := tellAfter; clock.Sleep(watch, pause, ctx.Done()); pause = tellEvery {
			text, err := r.lookAt(ctx, m.Process())
			if err == nil && text != said { // what fails here, fails in the acquisition as well
				said = text
				s.say("waiting for %s: %s", named(r.name), text)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// lookAt words why a process has to wait.
func (r *runner) lookAt(ctx context.Context, process string) (string, error) {
	st, err := r.connection.open(1)
	if err != nil {
		return "", err
	}
	defer st.close()
	look, err := catalog.LookAt(ctx, st, r.name)
	if err != nil || look.Lock == nil {
		return "", err
	}
	return inTheWay(look, process), nil
}

// inTheWay says who holds a lock and in which place of the line a process stands. The words stay
// the same as long as that does.
func inTheWay(h catalog.Snapshot, process string) string {
	place := "not yet in line"
	for i, w := range h.Lock.Waiters {
		if w.Process == process {
			place = fmt.Sprintf("place %d of %d in line", i+1, len(h.Lock.Waiters))
			break
		}
	}
	return holdersInWords(h) + "; " + place
}
