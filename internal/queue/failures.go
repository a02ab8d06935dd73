package queue

import (
	"context"
	"sync"

	"github.com/rs/zerolog"
)

// A FailureLog logs the first of several failures of one action, and the next success.
type FailureLog struct {
	Log    zerolog.Logger
	Action string

	mu       sync.Mutex // guards failures
	failures int        // in a row
}

// Failing reports whether the last attempt failed.
func (f *FailureLog) Failing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures > 0
}

// Record records one attempt. A nil err means success, or an error that is reported elsewhere. If
// ctx has ended, Record ignores the attempt.
func (f *FailureLog) Record(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	before := f.failures
	if f.failures++; err == nil {
		f.failures = 0
	}
	now := f.failures
	f.mu.Unlock()
	switch {
	case before == 0 && now > 0:
		f.Log.Warn().Err(err).Msg(f.Action + " failed")
	case before > 0 && now == 0:
		f.Log.Info().Int("failures", before).Msg(f.Action + " succeeds again")
	}
}
