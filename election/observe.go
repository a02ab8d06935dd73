package election

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/leading"
)

// A Candidate is a process that stands in an election.
type Candidate struct {
	Process string // the process id
	// Metadata is what the candidate gave by [Metadata]; empty for a waiter for a plain lock.
	Metadata string
	// Session is the lock session: one place in the line, and the term that follows from it.
	Session bson.ObjectID
	Since   time.Time // when it came to stand, or to lead, by the server's clock; zero when unknown
}

// A Leader is the process that leads at a reading, or nobody.
type Leader struct {
	Candidate
	Fence  int64
	Nobody bool // nobody leads; all else is empty
}

// Leader reads who leads. The answer may be out of date when it arrives. One command, or three on
// the embedded server.
//
// Errors: [ErrMode]; those of [distlock.Inspector.Holder].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.usable(ctx); err != nil {
		return Leader{}, err
	}
	holder, _, err := e.look(ctx)
	if err != nil {
		return Leader{}, err
	}
	return leaderOf(holder), nil
}

// Candidates reads who waits to lead, the next one first: at most the 100 that stand in the lock
// document. One command, or three on the embedded server.
//
// Errors: those of Leader.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	if err := e.usable(ctx); err != nil {
		return nil, err
	}
	_, line, err := e.look(ctx)
	if err != nil {
		return nil, err
	}
	candidates := make([]Candidate, 0, len(line))
	for _, one := range line {
		candidates = append(candidates, candidateOf(one))
	}
	return candidates, nil
}

// Observe yields who leads, or that nobody does, and then every change that a reading shows, until
// ctx ends. All observers of a process share its readings, one command about every Config.PollMax
// whatever their number and that of the elections: a change is told within that time, of several
// changes only the last. The fence tells whether a term between two readings was missed. The last
// error is the cause of the end; others pass, and the leader is yielded again after them.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := e.usable(ctx); err != nil {
			yield(Leader{}, err)
			return
		}
		var last Leader // no leader is like it: it neither leads nor says that nobody does
		for info, err := range e.manager.Internal(leading.Key{}).Watch(ctx, e.name) {
			if err == nil && info != nil && !fits(*info) {
				err = e.failed("observe", ErrMode)
			}
			now := Leader{}
			if err == nil {
				now = leaderOf(info)
			}
			if err == nil && now == last { // only a request to yield has changed
				continue
			}
			last = now
			if !yield(now, err) {
				return
			}
		}
	}
}

// tell has fn called with every new leader, until stop.
func (e *Election) tell(ctx context.Context, fn func(Leader)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex // guards over
	over := false
	begin := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !over
	}
	go func() { // ends with ctx, and with the call of fn that is under way then
		var last bson.ObjectID
		for leader, err := range e.Observe(ctx) {
			if err != nil || leader.Nobody || leader.Session == last {
				continue
			}
			if last = leader.Session; !begin() {
				return
			}
			e.tellOne(fn, leader)
		}
	}()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		cancel()
	}
}

func (e *Election) tellOne(fn func(Leader), leader Leader) {
	defer func() {
		if v := recover(); v != nil {
			e.log(panicked(v)).Msg("OnNewLeader panicked")
		}
	}()
	fn(leader)
}

// look reads the lock: who holds it, nil when nobody does, and who waits.
func (e *Election) look(ctx context.Context) (*distlock.LockInfo, []distlock.LockInfo, error) {
	holders, line, err := e.manager.Inspector().Holder(ctx, e.name)
	if err != nil {
		return nil, nil, err
	}
	var holder *distlock.LockInfo
	for _, one := range append(holders, line...) {
		if (one.Held || one.Place > 0) && !fits(one) {
			return nil, nil, e.failed("look at",
				fmt.Errorf("%w: %s by %s", ErrMode, one.Mode, quoted(one.Process)))
		}
		if one.Held {
			holder = &one
		}
	}
	return holder, line, nil
}

// fits reports whether a holder or waiter uses the lock as an election does, or as a plain lock.
func fits(one distlock.LockInfo) bool { return one.Mode == "exclusive" }

func leaderOf(holder *distlock.LockInfo) Leader {
	if holder == nil {
		return Leader{Nobody: true}
	}
	return Leader{Candidate: candidateOf(*holder), Fence: holder.Fence}
}

// CandidateOf returns the candidate, or leader, that a holder or waiter of a lock is. Elected is
// false for one who wants the name as a plain lock, and for the last holder of a lock that is free;
// it has no metadata then.
func CandidateOf(info distlock.LockInfo) (c Candidate, elected bool) {
	c = Candidate{Process: info.Process, Session: info.Session, Since: info.Since}
	head, _, ok := cutLast(info.Who)
	if elected = ok && strings.HasSuffix(head, ":"+label) && (info.Held || info.Place > 0); elected {
		c.Metadata = info.Why
	}
	return c, elected
}

func candidateOf(one distlock.LockInfo) Candidate {
	c, _ := CandidateOf(one) // what a plain lock says is no metadata
	return c
}

// cutLast cuts the random part off the field who.
func cutLast(who string) (head, random string, ok bool) {
	at := strings.LastIndexByte(who, ':')
	if at < 0 {
		return "", "", false
	}
	return who[:at], who[at+1:], true
}
