package assert

import (
	"bytes"
	"sync"
)

// Log stores the lines of a logger. A test may read them while goroutines write. With a
// [bytes.Buffer] that would be a race: even after synctest.Wait, later writes are not ordered after
// the read. Safe for concurrent use.
type Log struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
