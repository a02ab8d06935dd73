package distlock

import (
	"fmt"
	"strings"

	"mongodlm/catalog"
	"mongodlm/internal/contend"
)

// heldError tells the caller what is known of the process in the way: the first holder that lives
// as far as anybody can tell, or the first in line.
func (m *Manager) heldError(s contend.Scene) *HeldError {
	e := &HeldError{Name: s.Name, PingAge: -1, Holders: len(s.Holders())}
	if s.Lock != nil {
		e.Waiters, e.Mode = len(s.Lock.Waiters), modeWord(s.Lock.Mode)
		e.Fence, e.Permits = s.Lock.Fence, int(s.Lock.Limit)
	}
	if len(s.Judged) == 0 {
		e.Reason = "it was free a moment ago"
		return e
	}
	in := s.Judged[0]
	for _, h := range s.Holders() {
		if !h.Dead() {
			in = h
			break
		}
	}
	e.Process, e.Who, e.Why, e.Since = in.Process, in.Who, in.Why, in.Since
	e.TakeoverIn, e.Reason = in.Decision.Remaining, ofIt(in.Decision.Reason, in.Process)
	if !in.Waits {
		e.Fence = in.Fence
	}
	if n := len(s.Holders()); n >= catalog.MaxHolders {
		e.Reason = fmt.Sprintf("%d hold it, as many as may; %s", n, e.Reason)
	}
	last := m.pinger.Last()
	e.Self = last != nil && in.Process == last.Process()
	if in.PingState.Ping != nil && !s.ServerTime.IsZero() {
		e.PingAge = max(0, s.ServerTime.Sub(in.PingState.Ping.At))
	}
	return e
}

// ofIt words a verdict for a text that has named the process before.
func ofIt(reason, process string) string {
	if process == "" {
		return reason
	}
	id := `"` + strings.ReplaceAll(catalog.Printable(process, 200), `"`, `\"`) + `"`
	return strings.NewReplacer("the ping of "+id, "its ping", "ping of "+id, "its ping", id, "it").Replace(reason)
}
