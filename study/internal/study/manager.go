package study

import (
	"errors"
	"slices"
	"strings"
	"time"

	"mongodlm/distlock"
)

// The errors of the old generations.
var (
	errHeld      = errors.New("the lock is held")
	errLost      = errors.New("the lock is lost")
	errDuplicate = errors.New("duplicate key")
)

// A Generation is one lock manager.
type Generation struct {
	Name   string // as on the command line and in tables
	Title  string
	Source string // where to read on
	make   func(*process) manager
}

// Generations returns the lock managers in the order of their years; the last one is this module's.
func Generations() []Generation {
	return []Generation{
		{"1.8", "mongos 1.5.5 to 1.8", "client/distlock.cpp", newGen18},
		{"2.0", "mongos 1.9 to 3.0", "s/distlock.cpp", newGen20},
		{"3.2", "MongoDB 3.2 to 6.0", "s/catalog/replset_dist_lock_manager.cpp", newGen32},
		{Ours, "this module", "package distlock", newOurs},
	}
}

// Ours is the name of the generation that is package distlock.
const Ours = "ours"

// A manager is the lock manager of one process.
type manager interface {
	// start begins to ping, and reports whether it could.
	start() bool
	// lock acquires a lock, as its users do that have so much patience; 0 is one try.
	lock(name string, patience time.Duration) (tenure, error)
	// close ends it in order.
	close()
}

// A tenure is a lock that a manager said it has got.
type tenure interface {
	// session is how the lock document names it: process and ts.
	session() string
	// fence is its fencing token; 0 in a generation that has none.
	fence() int64
	// trusted says why the holder knows, without asking, that the lock is lost.
	trusted() error
	// proceed is trusted, and renews a lease.
	proceed() error
	// check asks the server, as far as the generation can.
	check() error
	// release frees the lock.
	release() error
}

// again calls try until patience is over, with pauses.
func again(p *process, patience, pause time.Duration, try func() (tenure, error)) (tenure, error) {
	end := p.w.Now() + patience
	for {
		h, err := try()
		left := end - p.w.Now()
		if err == nil || left <= 0 || patience == 0 {
			return h, err
		}
		p.sleep(min(pause, left))
	}
}

// A job is something for which a process wants the lock.
type job struct {
	at       time.Duration
	patience time.Duration
	work     time.Duration
	times    int           // how often it does all this
	hangs    time.Duration // after so much work it hangs for ever
	asks     bool          // it asks the server before each write, and not only before the last one
	twice    time.Duration // so long after its release it releases once more
	lease    time.Duration // life of the lock, where a generation has such a thing
}

// lockName is the lock of all cases.
const lockName = "balancer"

// step is how often whoever holds the lock writes to what it protects.
const step = time.Minute

// run does the job.
func (j *job) run(p *process) {
	p.sleep(j.at - p.w.Now())
	for range max(j.times, 1) {
		done := p.w.judge.wants(p)
		h, err := p.locks.lock(lockName, j.patience)
		p.sleep(0) // ends here if the process has died
		if done(); err != nil {
			p.w.record.mark(p, "refused", "does not get the lock: "+brief(err))
			continue
		}
		j.hold(p, h)
	}
}

// hold works under the lock: a write at once, one a minute, and at the end one after asking the
// server. It ends when the holder learns that the lock is lost.
func (j *job) hold(p *process, h tenure) {
	w := p.w
	t := w.judge.granted(p, h)
	for end := w.Now() + j.work; ; {
		left := end - w.Now()
		err := h.proceed()
		if err == nil && (left <= 0 || j.asks) {
			err = h.check()
		}
		if err != nil {
			w.judge.fails(t, err)
			break
		}
		if p.write(t); left <= 0 {
			break
		}
		if j.hangs > 0 && w.Now() >= t.From+j.hangs {
			w.judge.hangs(t)
			p.sleep(1000 * time.Hour)
		}
		p.sleep(min(step, left))
	}
	w.judge.released(t)
	err := h.release()
	if err == nil {
		w.record.mark(p, "released", "has released")
	} else {
		w.record.mark(p, "released", "could not release: "+brief(err))
	}
	if j.twice > 0 {
		p.sleep(j.twice)
		_ = h.release() // what it says is of no interest
	}
}

// write writes to what the lock protects: another machine, which knows fences.
func (p *process) write(t *tenureRecord) {
	in := true
	_ = p.send(Write, "write", t.label, func() error {
		in = p.w.judge.wrote(t)
		return nil
	}, func() string {
		if in {
			return "written"
		}
		return "refused: a newer holder has written"
	})
}

func brief(err error) string {
	if err == nil {
		return "done"
	}
	text := err.Error()
	if lost := (*distlock.LostError)(nil); errors.As(err, &lost) && lost.Cause != nil {
		text = lost.Cause.Error()
	}
	for _, known := range []error{errHeld, errLost, errUnreachable, errNoReply, distlock.ErrHeld,
		distlock.ErrOutcomeUnknown, distlock.ErrUnavailable} {
		if errors.Is(err, known) {
			return strings.TrimPrefix(known.Error(), "distlock: ")
		}
	}
	if i := slices.Index([]byte(text), '\n'); i >= 0 {
		text = text[:i]
	}
	return text
}
