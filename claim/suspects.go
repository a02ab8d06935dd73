package claim

import (
	"time"

	"mongodlm/internal/rows"
)

// suspect reports whether a row may be the one that kills its processes: it was begun before, and one
// of them has died. After the first death none is: so the rows of a process that was killed by a hand
// are worked on as any others.
func suspect(row rows.Row) bool { return row.Mark.Rescued && row.Mark.Attempts > 1 }

// workOn has a row handled and its claim ended, and returns how long the handler ran. Of suspects a
// process works on one at a time: the one that kills takes no other one's attempt with it. Another is
// left to other processes, or to later, when that one takes longer than a Poll.
func (r *run) workOn(c *claimed) (took time.Duration) {
	leave := locks.Use(c.s.guard) // until its claim is ended, so that the row is not done twice
	var o outcome
	switch {
	case !suspect(c.row):
		o, took = r.handled(c)
	case r.suspectAlone():
		defer func() { <-r.suspects }()
		o, took = r.handled(c)
	default:
		pause := r.e.backoff(c.row.Mark.Attempts)
		o = outcome{c, rows.Ending{To: rows.Retrying, Uncounted: true, Pause: pause}}
	}
	r.e.stats.handled(took)
	if !c.stage.CompareAndSwap(open, ending) { // the handler has ended it
		leave()
		return took
	}
	c.leave = leave
	switch {
	case r.e.cfg.Batch > 1 && !rescued(c.row): // one that was is ended before the next begins
		r.todo.ends(1)
		r.ends <- o
	default:
		r.end([]outcome{o})
	}
	return took
}

// suspectAlone waits for its turn among the suspects, a Poll or a second at most: the worker has other
// rows.
func (r *run) suspectAlone() bool {
	select {
	case r.suspects <- struct{}{}:
		return true
	default:
	}
	t := r.e.clock.NewTimer(min(r.e.cfg.Poll, failurePause))
	defer t.Stop()
	select {
	case r.suspects <- struct{}{}:
		return true
	case <-t.C():
	case <-r.ctx.Done():
	}
	return false
}
