package main

import (
	"errors"
	"strings"
	"time"

	"mongodlm/distlock"
)

var (
	errHeld      = errors.New("the lock is held")
	errLost      = errors.New("the lock is lost")
	errNothing   = errors.New("nothing matched")
	errSkewed    = errors.New("the clocks of the config servers differ")
	errDuplicate = errors.New("duplicate key")
)

// A Generation is a lock manager of mongos or of this module.
type Generation struct {
	Name  string // name on the command line and in tables
	Title string // the releases of this generation

	// decides is the time after which a contender takes over, if the holder stops ten seconds after
	// its ping. It includes the polls of the contender and two spare seconds.
	decides time.Duration

	replicaSet bool   // config servers are a replica set, not mirrored
	release    string // the played release; releases are compared as strings
	make       func(p *process, release string) manager
}

// Ours is the name of the generation that simulates package distlock.
const Ours = "ours"

// Generations returns all generations, the oldest first. The last generation is this module.
func Generations() []Generation {
	return []Generation{
		{Name: "1.8", Title: "mongos 1.7.6 to 1.8", release: "1.8.5", make: newGen18,
			decides: 16*m + 2*s},
		{Name: "2.0", Title: "mongos 1.9 to 2.4", release: "2.0.9", make: newGen20,
			decides: 15*m + 2*s},
		{Name: "2.6", Title: "mongos 2.6 and 3.0", release: "2.6.12", make: newGen20,
			decides: 14*m + 53*s},
		{Name: "3.2", Title: "MongoDB 3.2 to 6.0", release: "3.2.22", make: newGen32,
			decides: 14*m + 53*s, replicaSet: true},
		{Name: Ours, Title: "this module", make: newOurs, decides: 15*m + 7*s, replicaSet: true},
	}
}

// A manager is the lock manager of one process.
type manager interface {
	start() // starts the pings
	// lock acquires the lock in the same way as mongos of this generation. It waits for at most the
	// given patience. If the patience is 0, it tries once.
	lock(patience time.Duration) (*held, error)
}

// A held is a lock that a manager has acquired.
type held struct {
	session string       // process and ts in the lock document
	fence   int64        // fencing token; 0 in a generation without fences
	trusted func() error // error if the holder knows, without a command, that the lock is lost
	renew   func() error // renews the lease; does nothing without a lease
	ask     func() error // asks the server whether the lock is held, if the generation can do this
	release func() error
}

// A job is a use of the lock by a process.
type job struct {
	at, patience, work time.Duration

	times int           // number of repetitions
	hangs time.Duration // after this time of work the job hangs forever; 0 for never
	asks  bool          // asks the server before each write, not only before the last write
	lease time.Duration // life of the lock, in a generation with leases
}

func (j *job) run(p *process) {
	p.sleep(j.at - p.w.Now())
	for range max(j.times, 1) {
		done := p.w.judge.wants(p)
		h, err := p.locks.lock(j.patience)
		if p.Frozen() { // a frozen process notices nothing until it runs again
			awake := make(chan struct{})
			p.w.Post(p.Index, "awake", func() { p.WhenRunning(func() { close(awake) }) })
			p.await(awake)
		}
		if done(); err != nil {
			p.w.record.mark(p, "refused", "does not get the lock: "+brief(err))
		} else {
			j.hold(p, h)
		}
	}
}

// hold works while the process holds the lock. It writes at the start, once a minute, and once more
// at the end. Before the last write it asks the server whether the lock is still held. If the
// holder learns that the lock is lost, the work ends early.
func (j *job) hold(p *process, h *held) {
	w := p.w
	t := w.judge.granted(p, h)
	for end := w.Now() + j.work; ; {
		left := end - w.Now()
		err := h.renew()
		if err == nil && (left <= 0 || j.asks) {
			err = h.ask()
		}
		if err != nil {
			w.judge.fails(t, err)
			break
		}
		_ = line{process: p}.send(Write, "write", "", func() error { // the resource, which checks fences
			w.judge.wrote(t)
			return nil
		}, nil)
		if left <= 0 {
			break
		}
		if j.hangs > 0 && w.Now() >= t.From+j.hangs {
			t.Hung = w.Now()
			w.record.mark(p, "stop", "the thread that holds the lock hangs")
			p.sleep(1000 * time.Hour)
		}
		p.sleep(min(m, left))
	}
	w.judge.shut(t)
	kind, text := "released", "has released"
	if err := h.release(); err != nil {
		kind, text = "not released", "cannot release: "+brief(err)
	}
	w.record.mark(p, kind, text)
}

func brief(err error) string {
	if err == nil {
		return "done"
	}
	text := err.Error()
	if lost := (*distlock.LostError)(nil); errors.As(err, &lost) && lost.Cause != nil {
		text = lost.Cause.Error()
	}
	text, _, _ = strings.Cut(text, "\n")
	return strings.TrimPrefix(text, "distlock: ")
}
