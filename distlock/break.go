package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/contend"
)

// Break frees a lock by force if its holder is still the one that the operator saw: it has that
// fence and, if one is given, that session (LockInfo.Session). It writes why into the document,
// raises the fence, changes the session, and grants the lock to the next in line. Of a shared lock
// it takes out the one holder with that fence. A holder without a ping, or of a foreign manager, is
// broken by its session only.
//
// Break can let two holders in: a living holder learns of it with its next ping, at most Ping plus
// one command later, and trusts its guard until then. Make sure that the holder is dead or stopped,
// or that what the lock protects checks the fence. A guard of the Inspector's own Manager is lost
// at once.
//
// It returns a row for each process that was granted the lock; one row that is not Held when the
// lock is free now; none when others hold it still.
//
// Errors: those of Locks and, for the server, of [New]; [ErrFenceMismatch]; [ErrBadName];
// [ErrBadOption] for two sessions, and for a why that is empty or longer than 1,016 bytes;
// [ErrOutcomeUnknown]; *MalformedError.
func (i *Inspector) Break(ctx context.Context, name string, fence int64, why string,
	session ...bson.ObjectID) ([]LockInfo, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if why == "" {
		return nil, fmt.Errorf("%w: say why the lock is broken", ErrBadOption)
	}
	if problem := badText(why, maxWhy-len(brokenWord)); problem != "" {
		return nil, fmt.Errorf("%w: why %s", ErrBadOption, problem)
	}
	if len(session) > 1 {
		return nil, fmt.Errorf("%w: Break was given %d sessions; it breaks one", ErrBadOption, len(session))
	}
	ctx, done, err := i.begin(ctx)
	if err == nil {
		defer done()
		err = i.fit(ctx)
	}
	var broken catalog.Participant
	var now []LockInfo
	var own []*holding // lost by it
	defer func() {
		for _, h := range own {
			h.tellLoss()
		}
	}()
	end := func(s catalog.Session) { own = append(own, i.broken(s, fence)...) }
	if err == nil {
		broken, now, err = i.breakLock(ctx, name, fence, why, session, end)
	}
	switch {
	case errors.Is(err, errForeign):
		return nil, fmt.Errorf("distlock: break %s: %w: %w", quoted(name), ErrFenceMismatch, errForeign)
	case errors.Is(err, catalog.ErrNoMatch):
		return nil, fmt.Errorf("distlock: break %s: %w: it is not held with fence %d; list it again",
			quoted(name), ErrFenceMismatch, fence)
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return nil, fmt.Errorf("distlock: break %s: %w", quoted(name), doubtful(err))
	case err != nil:
		return nil, fmt.Errorf("distlock: break %s: %w", quoted(name), err)
	}
	i.log.Warn().Str("lock", catalog.Printable(name, 200)).Int64("fence", fence).
		Str("process", catalog.Printable(broken.Process, 200)).Str("why", catalog.Printable(why, 200)).
		Msg("broken by hand")
	if i.events != nil {
		i.events.emit(ctx, Event{
			Kind: EventBroken, Name: name, Why: why, Mode: modeWord(broken.Mode), Process: i.process(),
			Session: broken.TS, Fence: fence, Previous: broken.Process,
		})
	}
	return now, nil
}

// errForeign says why a fence is not enough.
var errForeign = errors.New("a foreign holder has it, which raises no fence; name the session that you saw")

// breakLock frees a lock that one holder has to itself, or takes one of several holders out, or the
// holder whom a line of waiters follows; then the next in line is granted the lock at once. end is
// told of the session before the command is sent. It returns the holder that was taken out, and
// what came of it.
func (i *Inspector) breakLock(ctx context.Context, name string, fence int64, why string,
	session []bson.ObjectID, end func(catalog.Session)) (catalog.Participant, []LockInfo, error) {
	look, err := catalog.LookAt(ctx, i.store, name)
	if err != nil {
		return catalog.Participant{}, nil, err
	}
	l := look.Lock
	if l == nil { // none, or none that can be understood
		s := catalog.Session{Name: name}
		for _, ts := range session {
			s.TS = ts
		}
		end(s)
		return i.free(ctx, s, fence, why)
	}
	holders := l.Holders()
	n := slices.IndexFunc(holders, func(p catalog.Participant) bool {
		return p.Fence == fence && (len(session) == 0 || session[0] == p.TS)
	})
	if n < 0 {
		return catalog.Participant{}, nil, fmt.Errorf("break %q: %w", name, catalog.ErrNoMatch)
	}
	seen := holders[n]
	if len(session) == 0 && !fenced(seen, pulseOf(look, seen)) {
		return seen, nil, errForeign
	}
	if len(l.Waiters) == 0 && len(l.Sharers) == 0 {
		end(l.Session())
		freed, now, err := i.free(ctx, l.Session(), fence, why)
		if !errors.Is(err, catalog.ErrNoMatch) {
			return freed, now, err
		} // else somebody came to wait, or it changed
	}
	end(catalog.Session{Name: name, TS: seen.TS})
	_, grants, err := i.store.Apply(ctx, transition.Evict{Holder: contend.HolderOf(name, seen), Evidence: brokenWord + why})
	i.granted(grants)
	var now []LockInfo
	for _, a := range grants {
		now = append(now, LockInfo{Name: name, Held: true, Process: a.Process, Session: a.TS, Fence: a.Fence})
	}
	if len(grants) == 0 && len(holders) == 1 {
		now = append(now, LockInfo{Name: name})
	}
	return seen, now, err
}

// free breaks a lock that one holder has to itself.
func (i *Inspector) free(ctx context.Context, s catalog.Session, fence int64, why string) (
	catalog.Participant, []LockInfo, error) {
	lock, _, err := i.store.Apply(ctx, transition.Break{Session: s, Fence: fence, Why: why})
	return catalog.Participant{TS: s.TS, Process: lock.Process}, []LockInfo{{Name: s.Name, Fence: lock.Fence}}, err
}
