package assert

import (
	"bytes"
	"sync"
)

// Log stores the lines of a logger. A test may read them while goroutines write. A [bytes.Buffer]
// would be a race even after synctest.Wait, which does not order later writes after the read. Safe
// for concurrent use.
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
