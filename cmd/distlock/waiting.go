package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// The times of the messages of a waiting run. It prints the reason after tellAfter, and a changed
// reason at most every tellEvery. slowAfter bounds a read. A release that takes longer than
// slowAfter is always reported.
const (
	tellAfter = time.Second
	tellEvery = 10 * time.Second
	slowAfter = 5 * time.Second
)

// tellWaiting prints the reason of the wait until the returned function is called. It prints if
// stderr is a terminal or --verbose is set. It costs one read every tellEvery.
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
			look, end := context.WithTimeout(ctx, slowAfter)
			text, err := r.lookAt(look, m)
			end()
			about := text
			if err != nil { // the error may pass: the acquisition continues
				text = r.plain(r.explain(err))
				about = kind(text)
			}
			if text != "" && about != said && ctx.Err() == nil {
				said = about
				s.say("waiting for %s: %s", named(r.name), text)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// tellSlow prints a message if the function done is not called within slowAfter.
func tellSlow(s stdio, format string, args ...any) (done func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the function done, which waits for it
		defer close(ended)
		if clock.Sleep(clock.System(), slowAfter, over) {
			s.say(format, args...)
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// lookAt returns the reason why a process waits.
func (r *runner) lookAt(ctx context.Context, m *distlock.Manager) (string, error) {
	holders, line, err := m.Inspector().Holder(ctx, r.name)
	if err != nil || holders == nil {
		return "", err
	}
	place := "not yet queued"
	for _, w := range line {
		if w.Process == m.Process() {
			place = fmt.Sprintf("place %d of %d in the queue", w.Place, len(line))
			break
		}
	}
	return holdersInWords(holders) + "; " + place, nil
}

// kind returns the part of an error's text that is the same in each attempt.
func kind(text string) string {
	if strings.HasPrefix(text, noServer) {
		text, _, _ = strings.Cut(text, ": ")
	}
	return text
}
