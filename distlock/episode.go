package distlock

import (
	"context"
	"errors"
	"sync"
)

// An episode is a time in which something fails that waiting may mend. However often it fails
// meanwhile, it is logged once when it begins and once when it ends.
type episode struct {
	m    *Manager
	what string

	mu       sync.Mutex // guards failures
	failures int        // 0: all is well
}

// note says how one command went. What its caller gave up says nothing, and what is told to a caller
// is no failure here.
func (e *episode) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	before := e.failures
	if e.failures++; err == nil || errors.Is(err, ErrHeld) || refused(err) || hopeless(err) {
		e.failures = 0
	}
	now := e.failures
	e.mu.Unlock()
	switch {
	case before == 0 && now > 0:
		e.m.log.Warn().Err(err).Msg(e.what + " failed")
	case before > 0 && now == 0:
		e.m.log.Info().Int("failures", before).Msg(e.what + " succeeds again")
	}
}
