package watch

import (
	"sync"
	"time"

	"mongodlm/takeover"
)

// observations holds the observations of other processes. Repeated calls of TryLock continue one
// observation. All locks of an observed process share one observation.
type observations struct {
	mu    sync.Mutex // guards the fields below
	seen  map[takeover.Subject]*observed
	swept time.Duration // monotonic time of the last sweep
}

type observed struct {
	takeover.Observation
	last time.Duration // monotonic time of the last read
}

// maxObservations is the number of observations above which abandoned observations are dropped. The
// search for abandoned observations runs once per ping interval, because it takes milliseconds.
const maxObservations = 256

// add adds one read to the observation of its subject, and returns the decision.
func (o *observations) add(e *takeover.Evidence, p takeover.Policy) takeover.Decision {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[takeover.Subject]*observed{}
	}
	if len(o.seen) > maxObservations && e.Sent-o.swept >= p.PingInterval {
		o.swept = e.Sent
		for subject, old := range o.seen {
			if e.Sent-old.last > p.MaxGap {
				delete(o.seen, subject)
			}
		}
	}
	subject := e.Subject()
	before := o.seen[subject]
	if before == nil {
		before = &observed{}
		o.seen[subject] = before
	}
	if first, begun := before.First(); begun && e.Sent < before.last {
		// Reads of several goroutines may overlap, and one read may contain a process several times. If
		// this read overlaps the previous read, the decision uses it, but the observation is not updated.
		e.LongestGap = 0
		if e.Server.Before(first.Server) {
			e.Server = first.Server
		}
		return takeover.Decide(first, *e, p)
	}
	next, decision := before.Look(*e, p)
	before.Observation, before.last = next, e.Received
	return decision
}

// unchanged returns the time for which the observed documents of a subject have not changed.
func (o *observations) unchanged(s takeover.Subject) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen := o.seen[s]; seen != nil {
		return seen.Unchanged()
	}
	return 0
}
