package distlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"mongodlm/catalog"
)

// LockInfo is one row of [Manager.Locks]. Texts are as stored: escape them before showing them.
type LockInfo struct {
	Name    string
	Held    bool
	Process string // last holder's when the lock is free
	Who     string
	Why     string
	Since   time.Time // server's clock; zero when unknown
	Fence   int64
	// Takeover is the holder's recorded takeover time; zero when unknown.
	Takeover time.Duration
	// HasPing is false when the holder has no ping document that can be understood.
	HasPing bool
	// PingAge is how old the holder's ping is by the server's clock; negative when unknown.
	PingAge time.Duration
	// Foreign is true when the ping is not one of ours: a mongos, or MongoDB's own manager.
	Foreign bool
	// Condemned is true when a contender has declared the holder dead.
	Condemned bool
	// Self is true when the holder is this Manager's process.
	Self bool
}

// Locks lists all lock documents by name, held or not, with what is known of their holders. A
// document that cannot be understood is yielded as a *MalformedError, and the listing goes on; any
// other error ends it. One command for each page of the server's answer.
func (m *Manager) Locks(ctx context.Context) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		if err := usable(ctx); err != nil {
			yield(LockInfo{}, fmt.Errorf("distlock: list: %w", err))
			return
		}
		for row, err := range m.locks.List(ctx) {
			if err != nil {
				err = fmt.Errorf("distlock: list: %w", err)
			}
			if !yield(m.info(row), err) {
				return
			}
		}
	}
}

func (m *Manager) info(row catalog.Holding) LockInfo {
	l := row.Lock
	info := LockInfo{
		Name: l.Name, Held: l.Held, Process: l.Process, Who: l.Who, Why: l.Why, Since: l.When,
		Fence: l.Fence, Takeover: l.Takeover, PingAge: -1,
		Self: l.Process != "" && l.Process == m.Process(),
	}
	if p := row.Ping; p != nil {
		info.HasPing, info.Foreign, info.Condemned = true, !p.HasSeq, p.Condemned != nil
		if !row.ServerTime.IsZero() {
			info.PingAge = max(0, row.ServerTime.Sub(p.At))
		}
	}
	return info
}

// Break frees a lock by force if it still carries the fence that the operator saw in a listing. It
// writes the reason into the document, raises the fence and changes the session, so that the old
// holder's release touches nothing.
//
// It is the one operation that can let two holders in: it does not wait. A holder that lives learns
// of it with its next ping, at most Ping plus one command later; until then it trusts its guard.
// Make sure that the holder is dead or stopped, or that what the lock protects checks the fence.
//
// Errors: [ErrChanged] when the lock is free or has another fence by now; [ErrBadName];
// [ErrBadOption] for a why that is empty or too long; [ErrOutcomeUnknown]: list the lock again;
// [ErrClosed].
func (m *Manager) Break(ctx context.Context, name string, fence int64, why string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if why == "" {
		return fmt.Errorf("%w: say why the lock is broken", ErrBadOption)
	}
	if problem := badText(why, MaxWhyBytes-len("broken: ")); problem != "" {
		return fmt.Errorf("%w: why %s", ErrBadOption, problem)
	}
	if err := usable(ctx); err != nil {
		return fmt.Errorf("distlock: break %s: %w", quoted(name), err)
	}
	if m.closing() {
		return fmt.Errorf("distlock: break %s: %w", quoted(name), ErrClosed)
	}
	lock, err := m.locks.Break(ctx, name, fence, why)
	switch {
	case errors.Is(err, catalog.ErrNoMatch):
		return fmt.Errorf("distlock: break %s: %w: it is not held with fence %d; list it again",
			quoted(name), ErrChanged, fence)
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return fmt.Errorf("distlock: break %s: %w: %w", quoted(name), ErrOutcomeUnknown, err)
	case err != nil:
		return fmt.Errorf("distlock: break %s: %w", quoted(name), err)
	}
	m.log.Warn().Str("lock", catalog.Printable(name, 200)).Int64("fence", lock.Fence).
		Str("process", catalog.Printable(lock.Process, 200)).Str("why", catalog.Printable(why, 200)).
		Msg("broken by hand")
	return nil
}
