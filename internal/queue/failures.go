package queue

import (
	"context"
	"sync"

	"github.com/rs/zerolog"
)

// A FailureLog logs a series of failures of one action twice: at its beginning and at its end.
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

// Record records one attempt. err is nil after a success, and after a failure that the caller
// returns. An attempt after the end of its context is ignored.
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
