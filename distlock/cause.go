package distlock

import (
	"context"
	"errors"

	"mongodlm/pinger"
)

// The words for the end of a context.
const canceled, closed = "canceled", "closed"

// causes are the words of [Event.Cause]. An error may match several: the first counts.
var causes = []struct {
	err  error
	word string
}{
	{ErrDeadlock, "deadlock"},
	{ErrPermitMismatch, "permits"},
	{ErrNoHeartbeat, "no heartbeat"},
	{ErrOutcomeUnknown, "unknown"},
	{ErrMalformed, "malformed"},
	{pinger.ErrCondemned, "condemned"},
	{pinger.ErrForked, "ping changed"},
	{pinger.ErrLapsed, "no ping"},
	{ErrLeaseExpired, "lease"},
	{errDocumentGone, "removed"},
	{ErrLockLost, "taken"},
	{ErrUnavailable, "unavailable"},
	{ErrClosed, closed},
	{context.Canceled, canceled},
	{context.DeadlineExceeded, canceled},
	{errTimeUp, canceled},
	{ErrHeld, "held"},
}

// Cause returns what Err is in one word of a fixed few, for a label; "" when it is nil.
//
//   - of an acquisition: "held", "permits", "deadlock", "canceled" (its context ended), "no
//     heartbeat"
//   - of a guard: "no ping" (none was acknowledged in time), "condemned", "ping changed" (by a
//     twin, or by hand), "lease", "taken" (another has the lock), "removed"
//   - of any command: "unavailable", "unknown" (its outcome), "denied" (a privilege), "malformed",
//     "closed", "other"
func (e Event) Cause() string {
	if e.Err == nil {
		return ""
	}
	for _, c := range causes {
		if errors.Is(e.Err, c.err) {
			return c.word
		}
	}
	var denied *PrivilegeError
	if errors.As(e.Err, &denied) {
		return "denied"
	}
	return "other"
}
