package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// Whoever waits is told why after tellAfter, and again when that has changed, every tellEvery at
// most. A look takes slowAfter at most, and a release that takes longer is told of in any case.
const (
	tellAfter = time.Second
	tellEvery = 10 * time.Second
	slowAfter = 5 * time.Second
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
			look, end := context.WithTimeout(ctx, slowAfter)
			text, err := r.lookAt(look, m)
			end()
			about := text
			if err != nil { // it may pass: the acquisition goes on meanwhile
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

// tellSlow says what is waited for, if that takes long, until the returned function is called.
func tellSlow(s stdio, format string, args ...any) (done func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with done, which waits for it
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

// kind is an error's text without what differs from try to try.
func kind(text string) string {
	if strings.HasPrefix(text, noServer) {
		text, _, _ = strings.Cut(text, ": ")
	}
	return text
}
