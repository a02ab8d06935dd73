package mongocatalog

import (
	"context"
	"sync/atomic"
	"time"
)

// linger is for how long a command goes on, on its connection, that its caller has given up. The
// driver closes the connection of a command that is cut off, and tells a server the deadline of one
// that has any, which breaks connections inside of a FerretDB: where many give up soon, those who
// come next would wait for connections.
const linger = time.Second

// A lingering is the context of a command that outlives its caller, but only once it is being sent:
// what still waits for a server or a connection when its caller gives up ends at once and is not
// sent any more, else it might come after its own undo. The driver asks Err when it has a
// connection, right before it sends, and nobody else does as long as Done is open.
type lingering struct {
	context.Context // bounded, without the caller's end
	caller          context.Context
	sent            atomic.Bool
}

// Err implements [context.Context].
func (l *lingering) Err() error {
	if err := l.Context.Err(); err != nil || l.sent.Load() {
		return err
	}
	if err := l.caller.Err(); err != nil {
		return err
	}
	l.sent.Store(true)
	return nil
}

// outlive returns a context for one command of a caller: it ends with the caller's, or up to linger
// later. bounded is without the caller's end, and stop ends it.
func outlive(caller, bounded context.Context, stop context.CancelFunc) (
	context.Context, context.CancelFunc,
) {
	l := &lingering{Context: bounded, caller: caller}
	release := context.AfterFunc(caller, func() {
		defer stop()
		if l.sent.Load() {
			more, done := context.WithTimeout(bounded, linger)
			defer done()
			<-more.Done()
		}
	})
	return l, func() { release(); stop() }
}
