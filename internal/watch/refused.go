package watch

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
)

// maxRefused limits the locks that a process watches after a call failed to acquire them. Above the
// limit, the lock with the oldest failed call is dropped.
const maxRefused = 256

// maxSightings limits the observations that are recorded after one read. Each of them costs a
// command.
const maxSightings = 16

const never = time.Duration(math.MaxInt64)

// refusals holds the locks that a call failed to acquire. The process watches their holders and
// waiters between calls. So even calls at long intervals continue one observation. Only a new call
// evicts, see EvictDue.
type refusals struct {
	mu      sync.Mutex // guards the fields below
	locks   map[string]*refusedLock
	running bool // the goroutine readRefused runs
}

// A refusedLock is a lock that a call failed to acquire. All times are monotonic.
type refusedLock struct {
	refused, read time.Duration // times of the last refused call and the last read
	due           time.Duration // earliest time at which a suspect may be dead, by the last read
	retry         time.Duration // earliest time of the next read by EvictDue
	others        map[bson.ObjectID]progress
}

// progress shows whether a suspect is alive. It changes with each ping of the process. For a holder
// with a lease, it changes with each renewal.
type progress struct {
	known   bool // known from a read with pings
	seq     int64
	at      time.Time
	renewal int64
}

// progressOfOthers returns the progress of the suspects of other processes. It includes holders of
// this process if they have a lease.
func (j *Judge) progressOfOthers(v *View) map[bson.ObjectID]progress {
	found := map[bson.ObjectID]progress{}
	if v.Lock == nil || v.Malformed() != nil {
		return found
	}
	for _, one := range v.Suspects {
		p := progress{known: one.Decision.Verdict != 0}
		if ping := one.PingState.Ping; ping != nil {
			p.seq, p.at = ping.Seq, ping.At
		}
		if lease, ok := v.Lock.LeaseOf(one.TS); ok && !one.Waits {
			p.seq, p.at, p.renewal = 0, time.Time{}, lease.Number // pings do not show a hanging holder
		}
		if one.Process != j.Pinger.Process() || p.renewal != 0 {
			found[one.TS] = p
		}
	}
	return found
}

// WatchRefused starts the watch of a lock that a call failed to acquire. The argument v is the view
// that the call has read. If the call ended before the read, v contains only the name.
//
// From then on the process reads the lock once per Interval, until each suspect of the view has
// made progress or left. One command reads all such locks.
func (j *Judge) WatchRefused(v View) {
	var others map[bson.ObjectID]progress
	if v.Lock != nil || v.LockErr != nil {
		others = j.progressOfOthers(&v)
	}
	if others != nil && len(others) == 0 {
		return
	}
	r, now := &j.refused, j.Clock.Now().Mono
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locks == nil {
		r.locks = map[string]*refusedLock{}
	}
	l := r.locks[v.Name]
	if l == nil {
		l = &refusedLock{read: now - j.Interval, due: never}
		r.locks[v.Name] = l
	}
	l.refused = now
	for ts, p := range others {
		if p.known {
			l.read, l.due = now, j.due(&v, now)
		} else if old, ok := l.others[ts]; ok {
			others[ts] = old // keep the progress of a read with pings; this view has no pings
		}
	}
	if others != nil {
		l.others = others
	}
	if len(r.locks) > maxRefused {
		r.dropOldest()
	}
	if !r.running {
		r.running = true
		j.Go(j.readRefused) // ends when no lock is left, or with Closed
	}
}

// dropOldest drops the lock with the oldest failed call. The caller holds mu.
func (r *refusals) dropOldest() {
	oldest, at := "", never
	for name, l := range r.locks {
		if l.refused < at {
			oldest, at = name, l.refused
		}
	}
	delete(r.locks, oldest)
}

// Watches reports whether the process watches a lock after a call failed to acquire it.
func (j *Judge) Watches(name string) bool {
	j.refused.mu.Lock()
	defer j.refused.mu.Unlock()
	return j.refused.locks[name] != nil
}

// due returns the earliest time at which a suspect may be dead.
func (j *Judge) due(v *View, received time.Duration) time.Duration {
	due := never
	for _, one := range v.Suspects {
		switch {
		case one.Process == j.Pinger.Process() && one.Renewal == 0: // left to the reaper
		case one.Dead():
			return received
		case one.Decision.Remaining > 0:
			due = min(due, received+one.Decision.Remaining)
		}
	}
	return due
}

// EvictDue evicts dead suspects from a lock that an earlier call failed to acquire. If no suspect
// can be dead yet, EvictDue does nothing. Each new call for the lock calls EvictDue. The commands
// run in a goroutine, because the new call may have too little time for them.
func (j *Judge) EvictDue(name string) {
	r, now := &j.refused, j.Clock.Now().Mono
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.locks[name]
	if l == nil || now < max(l.due, l.retry) {
		return
	}
	l.retry = now + j.Interval // a failure is not repeated with each call
	j.Go(func() {              // ends with its commands, which end with Closed
		ctx, cancel := clock.Until(j.Closed)
		defer cancel()
		v, err := j.Read(ctx, name)
		if err == nil && v.Malformed() == nil {
			_, err = j.EvictDead(ctx, v, len(v.Suspects))
		}
		if err != nil && !errors.Is(err, catalog.ErrNoMatch) {
			j.Log.Debug().Err(err).Str("lock", catalog.Printable(name, 200)).
				Msg("evicting dead processes failed")
		}
	})
}

// noteRead records a read of a lock, so that readRefused does not repeat the read.
func (j *Judge) noteRead(v *View, sent, received clock.Reading) {
	j.refused.mu.Lock()
	defer j.refused.mu.Unlock()
	if l := j.refused.locks[v.Name]; l != nil {
		l.read, l.due = sent.Mono, j.due(v, received.Mono)
	}
}

// unread returns the locks whose last read was sent at the given time or earlier. The result over
// is true if the process watches no lock any more.
func (r *refusals) unread(since time.Duration) (names []string, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, l := range r.locks {
		if l.read <= since {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	r.running = len(r.locks) > 0
	return names, !r.running
}

func (j *Judge) readRefused() {
	ctx, cancel := clock.Until(j.Closed)
	defer cancel()
	for pause := j.Interval; clock.Sleep(j.Clock, pause, j.Closed); {
		names, over := j.refused.unread(j.Clock.Now().Mono - j.Interval/2)
		if over {
			return
		}
		pause = j.Interval
		if len(names) > 0 && !j.readLocks(ctx, names) {
			pause = j.Interval / 4 // a long gap would restart the watch
		}
	}
}

// readLocks reads the given locks, and drops each lock without a silent suspect. It returns false
// if the read fails.
func (j *Judge) readLocks(ctx context.Context, names []string) (ok bool) {
	sent := j.Clock.Now() // R2 in docs/safety.md
	snapshots, err := j.Store.Snapshots(ctx, names)
	received := j.Clock.Now() // R1 in docs/safety.md
	if err != nil {
		j.Log.Debug().Err(err).Msg("reading the locks of refused calls failed")
		return false
	}
	views := make([]View, 0, len(names))
	for _, name := range names {
		v := j.Decide(name, snapshots[name], sent, received)
		j.refused.update(name, j.progressOfOthers(&v))
		views = append(views, v)
	}
	j.RecordSightings(ctx, views...)
	return true
}

// update compares the progress of the suspects with their progress at the last read. It drops
// suspects that have made progress, because they are alive. It also drops suspects that have left.
// A lock without suspects is dropped.
func (r *refusals) update(name string, now map[bson.ObjectID]progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.locks[name]
	if l == nil {
		return
	}
	if l.others == nil { // before the first read
		l.others = now
	}
	for ts, before := range l.others {
		if p, ok := now[ts]; ok && (!before.known || p == before) {
			l.others[ts] = p
		} else {
			delete(l.others, ts)
		}
	}
	if len(l.others) == 0 {
		delete(r.locks, name)
	}
}

// RecordSightings writes an observation, a [takeover.Sight], into the ping document of each silent
// process. Other contenders can use it after this process has ended. The views come from one read.
// A process with several locks gets one observation. After an error of the server, RecordSightings
// returns.
func (j *Judge) RecordSightings(ctx context.Context, views ...View) {
	done := map[string]bool{}
	own := j.Pinger.Process()
	for _, v := range views {
		for i := range v.Suspects {
			one := &v.Suspects[i]
			ping := one.PingState.Ping
			if done[one.Process] || ping == nil || one.Process == own || one.Dead() ||
				ping.Sight.By == own && ping.Sight.Seq == ping.Seq { // recorded before
				continue
			}
			seen, ok := one.Evidence.Sighting(own, j.Policy)
			if !ok {
				continue
			}
			err := j.Store.ApplyPing(ctx, transition.Witness{Watched: *ping, Sight: catalog.Sight{
				Seq: seen.Seq, At: seen.Server, Local: seen.Local, By: seen.By,
			}})
			if err != nil {
				j.Log.Debug().Err(err).Str("process", catalog.Printable(one.Process, 200)).
					Msg("recording the silence of a process failed")
			}
			done[one.Process] = true
			if err != nil && !errors.Is(err, catalog.ErrNoMatch) || len(done) == maxSightings {
				return
			}
		}
	}
}
