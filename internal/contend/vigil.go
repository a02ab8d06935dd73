package contend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
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
// nobody wants now.
type vigil struct {
	mu      sync.Mutex // guards the fields below
	kept    map[string]*keptLock
	running bool
}

type keptLock struct {
	asked, looked time.Duration // monotonic: the last call that was refused, the last look
	inTheWay      map[bson.ObjectID]pulse
}

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
	for i := range s.Judged {
		one := &s.Judged[i]
		if p := pulseOf(s, one); one.Process != j.Process.Process() || p.renewal != 0 {
			found[one.TS] = p
		}
	}
	return found
}

// Keep is told of the picture with which a call was refused. From then on the process looks at that
// lock once an interval, by one command for all such locks together, until nobody of those is
// silent in the way.
func (j *Judge) Keep(s Scene) {
	parties := j.parties(&s)
	if j.Go == nil || len(parties) == 0 {
		return
	}
	v, now := &j.vigil, j.Clock.Now().Mono
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept == nil {
		v.kept = map[string]*keptLock{}
	}
	v.kept[s.Name] = &keptLock{asked: now, looked: now, inTheWay: parties}
	if len(v.kept) > maxVigil {
		v.dropOldest()
	}
	if !v.running {
		v.running = true
		j.Go(j.watchOn) // ends when there is nobody to watch, or with Closed
	}
}

// dropOldest drops the lock that nobody has asked for the longest time. The caller holds mu.
func (v *vigil) dropOldest() {
	oldest := ""
	for name, k := range v.kept {
		if oldest == "" || k.asked < v.kept[oldest].asked {
			oldest = name
		}
	}
	delete(v.kept, oldest)
}

// looked notes a look of a call, which the vigil need not repeat.
func (v *vigil) looked(name string, sent time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.kept[name]; k != nil {
		k.looked = sent
	}
}

// due returns the locks that were not looked at lately; none and true when the vigil is over.
func (v *vigil) due(since time.Duration) (names []string, over bool) {
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends with watchOn: a command under way is given up at Close
		select {
		case <-j.Closed:
			cancel()
		case <-stop:
		}
	}()
	for pause := j.Interval; clock.Sleep(j.Clock, pause, j.Closed); {
		names, over := j.vigil.due(j.Clock.Now().Mono - j.Interval/2)
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
	for i := range scenes {
		for k := range scenes[i].Judged {
			one := &scenes[i].Judged[k]
			if done[one.Process] {
				continue
			}
			seen, ok := j.sighting(one)
			if !ok {
				continue
			}
			err := j.Store.Witness(ctx, *one.PingState.Ping, seen)
			if err != nil {
				j.Log.Debug().Err(err).Str("process", catalog.Printable(one.Process, 200)).Msg("sight not left")
			}
			done[one.Process] = true
			if err != nil && !errors.Is(err, catalog.ErrNoMatch) || len(done) == maxSights {
				return
			}
		}
	}
}

// sighting returns what to leave in the ping of a suspect; ok is false when there is nothing new to
// tell.
func (j *Judge) sighting(one *Judged) (s catalog.Sight, ok bool) {
	own, ping := j.Process.Process(), one.PingState.Ping
	if ping == nil || one.Process == own || one.Dead() || ping.Sight.By == own && ping.Sight.Seq == ping.Seq {
		return s, false
	}
	seen, ok := one.Evidence.Sighting(own, j.Policy)
	return catalog.Sight{Seq: seen.Seq, At: seen.Server, Local: seen.Local, By: seen.By}, ok
}
