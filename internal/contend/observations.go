package contend

import (
	"sync"
	"time"

	"mongodlm/takeover"
)

// observations are what a process has seen of others, so that repeated TryLock calls get there and
// one observation of a process serves all its locks. mongos 2.0.0 kept them in the lock object, and
// abandoned locks were never taken over.
type observations struct {
	mu    sync.Mutex // guards the fields below
	seen  map[takeover.Subject]observed
	swept time.Duration // monotonic time of the last sweep
}

type observed struct {
	takeover.Observation
	last time.Duration // monotonic time of the last look
}

// maxObservations is the number of observations from which those that are not looked at any more
// are dropped, once a ping interval: to look through all of them at each look would cost
// milliseconds.
const maxObservations = 256

// look adds one look to the observation it belongs to and decides.
func (o *observations) look(e *takeover.Evidence, p takeover.Policy) takeover.Decision {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[takeover.Subject]observed{}
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
	if first, begun := before.First(); begun && e.Sent < before.last {
		// Replies may come in another order than the looks were sent, when several goroutines
		// wait, and one look may show a process several times. A look that overlaps the last one
		// is judged and does not disturb the observation.
		e.LongestGap = 0
		if e.Server.Before(first.Server) {
			e.Server = first.Server
		}
		return takeover.Decide(first, *e, p)
	}
	next, decision := before.Look(*e, p)
	o.seen[subject] = observed{Observation: next, last: e.Received}
	return decision
}

// unchanged returns for how long the picture of a subject has stood.
func (o *observations) unchanged(s takeover.Subject) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[s].Unchanged()
}
