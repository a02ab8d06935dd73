package claim

import (
	"strings"
	"time"

	"mongodlm/internal/rows"
)

// A Failure is an attempt at a row that did not end well.
type Failure struct {
	Attempt int       // 1 for the first
	At      time.Time // when it was recorded, by the clock of the collection's server
	Process string    // that worked on it; empty when another one had to find out
	Error   string    // about 700 bytes of it
}

// Errors returns the failures of this row before this attempt, the last ten, the oldest first. Those
// whose process died, or whose lease ended, are among them where they counted as attempts, and as
// far as there is room: a rescue changes many rows at once and drops none. A row that was tried anew
// by a hand counts from 1 again.
func (r *Row[T]) Errors() []Failure { return failuresOf(r.c.row.Mark) }

// failuresOf numbers the failures that a rescue has recorded after those before them.
func failuresOf(m rows.Mark) []Failure {
	list := make([]Failure, len(m.Failures))
	last := int64(0)
	for i, f := range m.Failures {
		if f.Attempt == 0 {
			f.Attempt = last + 1
		}
		last = f.Attempt
		list[i] = Failure{Attempt: int(f.Attempt), At: f.At, Process: f.Process, Error: f.Error}
	}
	return list
}

// failed adds this failure to those that the row has: the process knows them, so that it is no
// command more.
func (e *engine) failed(c *claimed, end rows.Ending) rows.Ending {
	end.Failures = rows.Failed(c.row.Mark.Failures, rows.Failure{Attempt: c.row.Mark.Attempts, At: e.wall(),
		Process: e.m.Process(), Error: end.Error})
	return end
}

// wall is the time of day as a document keeps it: the server's, by its last reply. It is known
// before any row is claimed; in its place stands the process's own.
func (e *engine) wall() time.Time {
	now, _ := e.server.last()
	if now.IsZero() {
		now = e.clock.Now().Wall
	}
	return now.Truncate(time.Millisecond)
}

// mostError bounds the text of an error in a row.
const mostError = 2000

// printable bounds a text that goes into a document.
func printable(text string) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > mostError {
		text = strings.ToValidUTF8(text[:mostError], "") + "..."
	}
	return text
}
