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

// maxVigil is at how many locks a process goes on looking; those that nobody has asked for the
// longest time are dropped.
const maxVigil = 256

// maxSights is how many sights one look leaves at most, at all its locks together: each is a
// command.
const maxSights = 16

// A vigil goes on with the watch of those who were in the way of a call that was refused, so that
// tries of any period are one observation. It reads: nobody is condemned or taken out whose lock
// nobody wants now, see Wanted.
type vigil struct {
	mu      sync.Mutex // guards the fields below
	kept    map[string]*keptLock
	running bool
}

type keptLock struct {
	asked, looked time.Duration           // monotonic: the last call that was refused, the last look
	again         time.Duration           // the dead are taken out for a call once more from then on
	due           time.Duration           // one in the way may be dead from then on, by the last look
	inTheWay      map[bson.ObjectID]pulse // nil before the first look
}

const never = time.Duration(math.MaxInt64)

// A pulse is what a party in the way does while it lives: pings of its process, renewals of its
// lease.
type pulse struct {
	known   bool
	seq     int64
	at      time.Time
	renewal int64
}

func pulseOf(s *Scene, one *Judged) pulse {
	p := pulse{known: one.Decision.Verdict != 0}
	if ping := one.PingState.Ping; ping != nil {
		p.seq, p.at = ping.Seq, ping.At
	}
	if lease, ok := s.Lock.LeaseOf(one.TS); ok && !one.Waits {
		p.seq, p.at, p.renewal = 0, time.Time{}, lease.Number // it may hang while its process pings
	}
	return p
}

// parties are those in the way who are not of the own process, and what they do.
func (j *Judge) parties(s *Scene) map[bson.ObjectID]pulse {
	found := map[bson.ObjectID]pulse{}
	if s.Lock == nil || s.Malformed() != nil {
		return found
	}
	for _, one := range s.Judged {
		if p := pulseOf(s, &one); one.Process != j.Process.Process() || p.renewal != 0 {
			found[one.TS] = p
		}
	}
	return found
}

// Keep is told of the picture with which a call was refused; one without a lock is of a call whose
// time was up before it saw any. From then on the process looks at that lock once an interval, by
// one command for all such locks together, until nobody of those is silent in the way.
func (j *Judge) Keep(s Scene) {
	var parties map[bson.ObjectID]pulse
	if s.Lock != nil || s.LockErr != nil {
		parties = j.parties(&s)
	}
	if j.Go == nil || parties != nil && len(parties) == 0 {
		return
	}
	v, now := &j.vigil, j.Clock.Now().Mono
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept == nil {
		v.kept = map[string]*keptLock{}
	}
	k := v.kept[s.Name]
	if k == nil {
		k = &keptLock{looked: now - j.Interval, due: never}
		v.kept[s.Name] = k
	}
	k.asked = now
	for ts, p := range parties {
		if p.known {
			k.looked, k.due = now, j.due(&s, now)
		} else if old, there := k.inTheWay[ts]; there {
			parties[ts] = old // it was looked at, and this picture is of the lock alone
		}
	}
	if parties != nil {
		k.inTheWay = parties
	}
	if len(v.kept) > maxVigil {
		oldest := s.Name
		for name, k := range v.kept {
			if k.asked < v.kept[oldest].asked {
				oldest = name
			}
		}
		delete(v.kept, oldest)
	}
	if !v.running {
		v.running = true
		j.Go(j.watchOn) // ends when there is nobody to watch, or with Closed
	}
}

// Keeps reports whether the process goes on looking at a lock.
func (j *Judge) Keeps(name string) bool {
	j.vigil.mu.Lock()
	defer j.vigil.mu.Unlock()
	return j.vigil.kept[name] != nil
}

// due is from when on somebody may be taken out of a lock if nothing changes.
func (j *Judge) due(s *Scene, received time.Duration) time.Duration {
	due := never
	for _, one := range s.Judged {
		switch {
		case one.Process == j.Process.Process() && one.Renewal == 0: // the reaper's
		case one.Dead():
			return received
		case one.Decision.Remaining > 0:
			due = min(due, received+one.Decision.Remaining)
		}
	}
	return due
}

// Wanted is told that somebody has just asked for a lock. Where the vigil has it that one in the
// way is dead by now, it looks and takes the dead out, beside the call and also when that ends
// meanwhile: its time may be shorter than a look takes.
func (j *Judge) Wanted(name string) {
	v, now := &j.vigil, j.Clock.Now().Mono
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.kept[name]
	if k == nil || now < max(k.due, k.again) {
		return
	}
	k.again = now + j.Interval // what fails now is not tried by each call
	j.Go(func() {              // ends with its commands, which end with Closed
		ctx, cancel := clock.Until(j.Closed)
		defer cancel()
		s, err := j.Look(ctx, name)
		if err == nil && s.Malformed() == nil {
			_, err = j.EvictDead(ctx, s, len(s.Judged))
		}
		if err != nil && !errors.Is(err, catalog.ErrNoMatch) {
			j.Log.Debug().Err(err).Str("lock", catalog.Printable(name, 200)).Msg("take the dead out")
		}
	})
}

// looked notes a look, which the vigil need not repeat, and from when on one in the way may be
// dead.
func (j *Judge) looked(s *Scene, sent, received clock.Reading) {
	j.vigil.mu.Lock()
	defer j.vigil.mu.Unlock()
	if k := j.vigil.kept[s.Name]; k != nil {
		k.looked, k.due = sent.Mono, j.due(s, received.Mono)
	}
}

// unseen returns the locks that were not looked at lately; none and true when the vigil is over.
func (v *vigil) unseen(since time.Duration) (names []string, over bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, k := range v.kept {
		if k.looked <= since {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	v.running = len(v.kept) > 0
	return names, !v.running
}

// watchOn is the goroutine of the vigil.
func (j *Judge) watchOn() {
	ctx, cancel := clock.Until(j.Closed)
	defer cancel()
	for pause := j.Interval; clock.Sleep(j.Clock, pause, j.Closed); {
		names, over := j.vigil.unseen(j.Clock.Now().Mono - j.Interval/2)
		if over {
			return
		}
		pause = j.Interval
		if len(names) > 0 && !j.lookOn(ctx, names) {
			pause = j.Interval / 4 // the watch bears no long gap
		}
	}
}

// lookOn looks at the locks of the vigil and drops those that nobody silent is in the way of.
func (j *Judge) lookOn(ctx context.Context, names []string) (ok bool) {
	sent := j.Clock.Now() // R2
	looks, err := j.Store.Snapshots(ctx, names)
	received := j.Clock.Now() // R1
	if err != nil {
		j.Log.Debug().Err(err).Msg("look at the silent")
		return false
	}
	scenes := make([]Scene, 0, len(names))
	for _, name := range names {
		s := j.Decide(name, looks[name], sent, received)
		j.vigil.goOn(name, j.parties(&s))
		scenes = append(scenes, s)
	}
	j.LeaveSights(ctx, scenes...)
	return true
}

// goOn compares what those in the way do with what they did, and forgets those that live or have
// left.
func (v *vigil) goOn(name string, now map[bson.ObjectID]pulse) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.kept[name]
	if k == nil {
		return
	}
	if k.inTheWay == nil {
		k.inTheWay = now
	}
	for ts, before := range k.inTheWay {
		if p, there := now[ts]; there && (!before.known || p == before) {
			k.inTheWay[ts] = p
		} else {
			delete(k.inTheWay, ts)
		}
	}
	if len(k.inTheWay) == 0 {
		delete(v.kept, name)
	}
}

// LeaveSights leaves in the pings of those who are silent what was seen of them, for contenders
// that come when this process is gone. The scenes are those of one look: a process gets one sight,
// however many locks show it. What fails is left by the next look, or by somebody else; where the
// server fails the others are not tried now.
func (j *Judge) LeaveSights(ctx context.Context, scenes ...Scene) {
	done := map[string]bool{}
	for _, s := range scenes {
		own := j.Process.Process()
		for i := range s.Judged {
			one := &s.Judged[i]
			ping := one.PingState.Ping
			if done[one.Process] || ping == nil || one.Process == own || one.Dead() ||
				ping.Sight.By == own && ping.Sight.Seq == ping.Seq { // it was told before
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
					Msg("sight not left")
			}
			done[one.Process] = true
			if err != nil && !errors.Is(err, catalog.ErrNoMatch) || len(done) == maxSights {
				return
			}
		}
	}
}
