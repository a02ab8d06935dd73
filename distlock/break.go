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
// raises the fence, changes the session, and grants the lock to the next in line; those in it who
// are dead, or have missed two pings by the server's clock, are taken out of it first, and who lives
// among them enters it again in its place. Of a shared lock it takes out the one holder with that
// fence. A holder without a ping, or of a foreign manager, is broken by its session only.
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
	if problem := catalog.BadText(why, maxWhy-len(brokenWord)); problem != "" {
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
		return nil, failedTo("break", name, fmt.Errorf("%w: %w", ErrFenceMismatch, errForeign))
	case errors.Is(err, catalog.ErrNoMatch):
		return nil, failedTo("break", name,
			fmt.Errorf("%w: it is not held with fence %d; list it again", ErrFenceMismatch, fence))
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return nil, failedTo("break", name, doubtful(err))
	case err != nil:
		return nil, failedTo("break", name, err)
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
	waiters, now := i.leaveOut(ctx, look, len(holders) == 1)
	if waiters == 0 && len(l.Sharers) == 0 {
		end(l.Session())
		freed, free, err := i.free(ctx, l.Session(), fence, why)
		if !errors.Is(err, catalog.ErrNoMatch) {
			return freed, free, err
		} // else somebody came to wait, or it changed
	}
	end(catalog.Session{Name: name, TS: seen.TS})
	granted, err := i.evict(ctx, contend.HolderOf(name, seen), brokenWord+why)
	if now = append(now, granted...); len(now) == 0 && len(holders) == 1 {
		now = append(now, LockInfo{Name: name})
	}
	return seen, now, err
}

// leaveOut takes those out of a line who are gone, as a living waiter does before a release, so that
// the break grants the lock to none of them; where others go on holding it, one who wants it alone
// is not granted it. It returns how many are left, and who holds the lock since then. One command for
// each; what fails is left to the break, which says who has the lock.
func (i *Inspector) leaveOut(ctx context.Context, look catalog.Snapshot, alone bool) (waiters int, now []LockInfo) {
	for _, w := range i.waiters(look) {
		waiters++
		if !w.Gone() || !alone && w.Mode == modeWord(catalog.Exclusive) {
			continue
		}
		const evidence = "rule silent: its process is dead, or has missed two pings, and the lock is to be broken"
		gone := catalog.Holder{Session: catalog.Session{Name: w.Name, TS: w.Session}, Process: w.Process, Waits: true}
		granted, err := i.evict(ctx, gone, evidence)
		now = append(now, granted...)
		if err == nil && i.events != nil {
			i.events.emit(ctx, Event{Kind: EventEvicted, Name: w.Name, Why: w.Why, Mode: w.Mode, Process: i.process(),
				Session: w.Session, Previous: w.Process, Rule: "silent", Evidence: evidence})
		}
		if err == nil || errors.Is(err, catalog.ErrNoMatch) { // else it has left, or was granted the lock
			waiters--
		}
	}
	return waiters, now
}

// evict takes one out of a lock or its line, and returns who was granted the lock by it.
func (i *Inspector) evict(ctx context.Context, gone catalog.Holder, evidence string) (now []LockInfo, err error) {
	_, grants, err := i.store.Apply(ctx, transition.Evict{Holder: gone, Evidence: evidence})
	i.granted(grants)
	for _, a := range grants {
		now = append(now, LockInfo{Name: gone.Name, Held: true, Process: a.Process, Session: a.TS, Fence: a.Fence})
	}
	return now, err
}

// free breaks a lock that one holder has to itself.
func (i *Inspector) free(ctx context.Context, s catalog.Session, fence int64, why string) (
	catalog.Participant, []LockInfo, error) {
	lock, _, err := i.store.Apply(ctx, transition.Break{Session: s, Fence: fence, Why: why})
	return catalog.Participant{TS: s.TS, Process: lock.Process}, []LockInfo{{Name: s.Name, Fence: lock.Fence}}, err
}
