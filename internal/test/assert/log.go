package assert

import (
	"bytes"
	"sync"
)

// A Log stores the output of a logger. It is safe for concurrent use: a test can read a Log while
// goroutines write to it.
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
