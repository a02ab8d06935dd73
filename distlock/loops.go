package distlock

import "sync"

// loops are the background loops of a Manager. None begins once they are waited for, so that
// whatever was acquired too late for Close leaves nothing behind.
type loops struct {
	mu   sync.Mutex // guards over, and beginning against it
	over bool
	wg   sync.WaitGroup
}

// Go runs a loop in the background, unless the loops are waited for already.
func (l *loops) Go(run func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.wg.Go(run)
	}
}

// Wait lets no further loop begin, and waits until all have ended.
func (l *loops) Wait() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.wg.Wait()
}
