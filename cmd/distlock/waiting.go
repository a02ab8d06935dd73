package main

import (
	"context"
	"fmt"
	"time"

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
// returned function is called. It costs one look every tellEvery.
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
			text, err := r.lookAt(ctx, m)
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
func (r *runner) lookAt(ctx context.Context, m *distlock.Manager) (string, error) {
	holders, line, err := m.Inspector().Holder(ctx, r.name)
	if err != nil || holders == nil {
		return "", err
	}
	place := "not yet in line"
	for _, w := range line {
		if w.Process == m.Process() {
			place = fmt.Sprintf("place %d of %d in line", w.Place, len(line))
			break
		}
	}
	return holdersInWords(holders) + "; " + place, nil
}
