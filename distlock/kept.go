package distlock

import (
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// keptPlaces are places in lines of documents whose callers' time was up a moment ago. Who comes
// again at once goes on with one of them, which costs no command and keeps the order. Else a crowd
// of those who wait for less than a few round trips at a time would write their leaving and their
// entering all the time, and hear of hardly any turn.
type keptPlaces struct {
	mu     sync.Mutex   // guards places
	places []*keptPlace // oldest first
}

// A keptPlace is that of a call whose caller has gone. It is kept for a grace.
type keptPlace struct {
	*call
	since time.Time     // see await
	taken chan struct{} // closed when it is kept no longer
}

// suits reports whether a caller of a lock could stand there: what the document says of it would be
// the same. It holds nothing else, and neither did the one before it.
func (k *keptPlace) suits(c *call) bool {
	return k.name == c.name && k.o.mode == c.o.mode && k.o.limit == c.o.limit && k.o.why == c.o.why &&
		k.o.label == c.o.label && k.o.manner == c.o.manner && k.term.Err() == nil
}

// take returns the oldest place that will do, which is kept no longer; nil if there is none.
func (p *keptPlaces) take(do func(*keptPlace) bool) *keptPlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.places, do)
	if i < 0 {
		return nil
	}
	k := p.places[i]
	p.places = slices.Delete(p.places, i, i+1)
	close(k.taken)
	return k
}

// keep keeps the place of a caller whose time is up. Whatever ends that, if no other caller does,
// takes the session out of the lock, granted or not. Until then it is one that is under way: Close
// waits for it.
func (p *keptPlaces) keep(c *call, since time.Time) {
	k := &keptPlace{call: c, since: since, taken: make(chan struct{})}
	p.mu.Lock()
	p.places = append(p.places, k)
	p.mu.Unlock()
	go func() { // ends after a grace
		timer := c.m.cfg.Clock.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-k.taken:
			return
		case <-timer.C():
		case <-c.m.closed:
		case <-c.term.Done():
		}
		if p.take(func(one *keptPlace) bool { return one == k }) != nil {
			c.undo()
			c.end()
		}
	}()
}

// goOn takes over the session of a caller of this process that has just given up, if there is one
// for this call, and returns since when it stands in the line.
func (c *call) goOn(holds []bson.ObjectID) (since time.Time, ok bool) {
	if len(holds) > 0 {
		return since, false
	}
	k := c.m.kept.take(func(k *keptPlace) bool { return k.suits(c) })
	if k == nil {
		return since, false
	}
	c.session = k.session
	return k.since, true
}
