package study

import (
	"fmt"
	"time"
)

// redlock is Redlock, one per process:
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/, section The Redlock
// Algorithm, of which the steps are numbered here, and for who works longer the section Making the
// algorithm more reliable: Extending the lock. That the servers' keys expire by their wall clocks
// says https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html, section Breaking
// Redlock with bad timings. A server clock that steps is that of one of the five.
//
// Not played: what becomes of a key when its server restarts.
type redlock struct {
	p       *process
	servers *redises
	tries   int
}

// redises are the servers.
type redises [5]redis

// redis is one server: the value of the key, and until when by the server's clock.
type redis struct {
	value string
	until time.Time
}

const (
	ttlRedlock    = 30 * time.Second                    // Correct Implementation with a Single Instance
	driftRedlock  = ttlRedlock/100 + 2*time.Millisecond // Safety Arguments: clocks drift
	limitRedlock  = 50 * time.Millisecond               // of one server, step 2
	retryRedlock  = time.Second                         // Retry on Failure: after a while
	extendRedlock = ttlRedlock / 3                      // long before the keys expire
	quorumRedlock = len(redises{})/2 + 1                // step 3
)

func newRedlock(p *process, _ release) manager {
	if p.w.beside == nil {
		servers := &redises{}
		p.w.beside, p.w.holder = servers, func() string { return servers.holder(p.w) }
	}
	p.limit = limitRedlock
	return &redlock{p: p, servers: p.w.beside.(*redises)}
}

// now is the clock of a server.
func (r *redises) now(w *world, i int) time.Time {
	if i == 0 {
		return w.ServerNow()
	}
	return w.True()
}

// value is that of the key on a server; empty: it has expired, or there is none.
func (r *redises) value(w *world, i int) string {
	if !r.now(w, i).Before(r[i].until) {
		return ""
	}
	return r[i].value
}

// holder is the value that most servers have.
func (r *redises) holder(w *world) string {
	count := map[string]int{}
	for i := range r {
		value := r.value(w, i)
		if count[value]++; count[value] >= quorumRedlock {
			return value
		}
	}
	return ""
}

func (g *redlock) start() bool { return true }
func (g *redlock) close()      {} // its keys expire

// lock tries until patience is over.
func (g *redlock) lock(_ string, patience time.Duration) (tenure, error) {
	return again(g.p, patience, retryRedlock, g.tryLock)
}

// each sends a command to one server after the other, and counts those that did it.
func (g *redlock) each(kind Kind, op string, do func(i int) bool) (n int) {
	for i := range g.servers {
		done := false
		err := g.p.send(g.p.w.generation.Source, kind, op,
			func() string { return fmt.Sprintf("to server %d", i+1) },
			func() error {
				done = do(i)
				return nil
			}, func() string { return fmt.Sprintf("server %d: %v", i+1, done) })
		if err == nil && done {
			n++
		}
	}
	return n
}

// tryLock is steps 1 to 5.
func (g *redlock) tryLock() (tenure, error) {
	g.tries++
	h := &heldRedlock{g: g, value: fmt.Sprintf("%s:%d", g.p.host, g.tries)} // a random value
	start := g.p.now()                                                      // step 1
	n := g.each(Grab, "SET NX PX", func(i int) bool {                       // step 2
		free := g.servers.value(g.p.w, i) == ""
		if free {
			g.servers[i] = redis{h.value, g.servers.now(g.p.w, i).Add(ttlRedlock)}
		}
		return free
	})
	h.until = start.Add(ttlRedlock - driftRedlock)
	if n < quorumRedlock || h.trusted() != nil { // steps 3 and 4
		_ = h.release() // step 5: all of them, also those that seemed not to be locked
		return nil, errHeld
	}
	g.p.Go(h.extends)
	return h, nil
}

// heldRedlock is a lock that was got.
type heldRedlock struct {
	g     *redlock
	value string
	until time.Time // by its own clock
	over  bool
}

// extends extends the lock, as long as it is valid.
func (h *heldRedlock) extends() {
	for {
		h.g.p.sleep(extendRedlock)
		if h.over || h.check() != nil && h.trusted() != nil {
			return
		}
	}
}

func (h *heldRedlock) session() string { return h.value }
func (h *heldRedlock) fence() int64    { return 0 } // its values are random

// trusted is step 4: the lock is valid for a while, by the own clock.
func (h *heldRedlock) trusted() error {
	if !h.g.p.now().Before(h.until) {
		return errLost
	}
	return nil
}

func (h *heldRedlock) proceed() error { return h.trusted() }

// check extends the lock: it counts if most servers did it while it was valid.
func (h *heldRedlock) check() error {
	start := h.g.p.now()
	n := h.g.each(Ping, "extend", func(i int) bool {
		mine := h.g.servers.value(h.g.p.w, i) == h.value
		if mine {
			h.g.servers[i].until = h.g.servers.now(h.g.p.w, i).Add(ttlRedlock)
		}
		return mine
	})
	if n < quorumRedlock || h.trusted() != nil {
		return errLost
	}
	h.until = start.Add(ttlRedlock - driftRedlock)
	return nil
}

// release deletes the key where it has its value.
func (h *heldRedlock) release() error {
	h.over = true
	h.g.each(Release, "delete if mine", func(i int) bool {
		mine := h.g.servers.value(h.g.p.w, i) == h.value
		if mine {
			h.g.p.writes++
			h.g.servers[i] = redis{}
		}
		return mine
	})
	return nil
}
