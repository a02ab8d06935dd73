package distlock

import (
	"slices"
	"sync"
	"time"
)

// keptPlaces are places in lines of documents whose callers' time was up a moment ago. Who comes
// again at once goes on with one of them, which costs no command and keeps the order. Else a crowd
// of those who wait for less than a few round trips at a time would write their leaving and their
// entering all the time, and hear of hardly any turn.
type keptPlaces struct {
	mu     sync.Mutex   // guards places
	places []*keptPlace // oldest first
}

// A keptPlace is that of an attempt without a caller. It is kept for a grace.
type keptPlace struct {
	me    *waiter
	since time.Time     // see await
	taken chan struct{} // closed when it is kept no longer
}

// suits reports whether a caller of a lock could stand there: what the document says of it would be
// the same. It holds nothing else, and neither did the one before it.
func (k *keptPlace) suits(name string, o acquireOptions) bool {
	r := k.me.a.request
	return r.Name == name && r.Mode == o.mode && r.Limit == o.limit && r.Why == o.why && k.me.a.label == o.label &&
		k.me.a.term.Err() == nil
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
// takes the attempt out of the lock, granted or not. Until then it is one that is under way: Close
// waits for it.
func (p *keptPlaces) keep(me *waiter, since time.Time) {
	k := &keptPlace{me: me, since: since, taken: make(chan struct{})}
	p.mu.Lock()
	p.places = append(p.places, k)
	p.mu.Unlock()
	go func() { // ends after a grace
		timer := me.a.m.cfg.Clock.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-k.taken:
			return
		case <-timer.C():
		case <-me.a.m.closed:
		case <-me.a.term.Done():
		}
		if p.take(func(one *keptPlace) bool { return one == k }) != nil {
			me.a.undo()
			me.end()
		}
	}()
}

// goesOn takes over a place that a caller of this process has just given up, if there is one for
// this call.
func (w *waiting) goesOn(held int) *keptPlace {
	if held > 0 {
		return nil
	}
	k := w.m.kept.take(func(k *keptPlace) bool { return k.suits(w.name, w.o) })
	if k != nil {
		k.me.a.parent, k.me.a.began, k.me.a.life = w.o.parent, w.o.began, w.o.life
	}
	return k
}
