package assert

import (
	"bytes"
	"sync"
)

// Log takes the lines of a logger, and a test may read them while goroutines go on to write. With a
// [bytes.Buffer] that is a race even after synctest.Wait: what a goroutine writes later is not
// ordered after what the test has read. Safe for concurrent use.
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
