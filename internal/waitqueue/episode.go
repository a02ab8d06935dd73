package waitqueue

import (
	"context"
	"sync"

	"github.com/rs/zerolog"
)

// An Episode is a time in which something fails that waiting may mend. However often it fails
// meanwhile, it is logged once when it begins and once when it ends.
type Episode struct {
	Log  zerolog.Logger
	What string

	mu       sync.Mutex // guards failures
	failures int        // 0: all is well
}

// Lasts reports whether the episode goes on.
func (e *Episode) Lasts() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failures > 0
}

// Note says how one command went: nil when it went well, or failed in a way that its caller is
// told. What its caller gave up says nothing.
func (e *Episode) Note(ctx context.Context, failure error) {
	if ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	before := e.failures
	if e.failures++; failure == nil {
		e.failures = 0
	}
	now := e.failures
	e.mu.Unlock()
	switch {
	case before == 0 && now > 0:
		e.Log.Warn().Err(failure).Msg(e.What + " failed")
	case before > 0 && now == 0:
		e.Log.Info().Int("failures", before).Msg(e.What + " succeeds again")
	}
}
