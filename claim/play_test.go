package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/memrows"
	"mongodlm/internal/test/simulation"
)

// A play is one run of a queue in the simulation.
type play struct {
	seed     uint64
	cfg      Config
	n        int
	poison   map[int]bool // rows that kill their process until the faults end
	refused  map[int]bool // rows that the server refuses to change for a while
	from, to time.Duration
	keys     []string // the keys of the rows; nil: no chains

	out   *simulation.Outside
	store *memrows.Memory

	mu      sync.Mutex // guards the rest
	working map[*Row[item]]*simulation.User
	begun   map[int]int            // how often each row was begun
	tried   map[int]map[int64]bool // the fences of each row's attempts
	fences  map[int]int64          // the largest fence of each row's attempts
	told    map[string]bool        // the reported violations
	judged  bool                   // the rules for the end of the run were checked
	since   time.Duration          // when all rows were done or dead
	counts  map[string]int64       // the numbers of claims, states and crashes
	marks   map[int]string         // the last state of each row in the timeline
}

// The names of a queue's rules in the reports of the simulation.
const (
	ruleTwo   = "two at work"
	ruleOnce  = "done once"
	ruleTried = "tried before it dies"
	ruleDone  = "done in time"
	ruleFence = "fences rise"
)

func (p *play) begin(o *simulation.Outside, s simulation.Schedule) {
	p.out, p.store = o, memrows.New(rows.Options{Key: p.cfg.Key})
	p.working, p.begun, p.fences = map[*Row[item]]*simulation.User{}, map[int]int{}, map[int]int64{}
	p.tried, p.judged, p.since = map[int]map[int64]bool{}, false, 0
	p.told, p.counts, p.marks = map[string]bool{}, map[string]int64{}, map[int]string{}
	p.store.Refuse(func(row rows.Row) error {
		if now := o.Now(); p.refused[number(row)] && now >= p.from && now < p.to {
			return errors.New("document failed validation")
		}
		return nil
	})
	docs := make([]any, p.n)
	for i := range docs {
		docs[i] = item{ID: i, Chain: p.key(i)}
	}
	every := s.Length / time.Duration(p.n)
	for i := range p.n { // half of them at the start, the others one by one
		at := time.Duration(0)
		if i%2 == 0 {
			at = time.Duration(i) * every / 2
		}
		o.At(at, func() { _ = p.store.Insert(context.Background(), docs[i:i+1]) })
	}
	o.Always(p.look)
	o.At(s.Length+time.Second, o.Revive)
	calm := 2 * s.Timing.Takeover // late commands still arrive in this time
	o.Always(func() {
		if now := o.Now(); !p.judged && (now >= s.Length+s.Quiet-time.Second || p.settled(now) >= calm) {
			p.judged = true
			p.last()
			o.End()
		}
	})
}

func (p *play) violated(rule, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if !p.told[rule+what] {
		p.told[rule+what] = true
		p.out.Violated(rule, "%s", what)
	}
}

func (p *play) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, row := range p.store.All() {
		if row.Mark.State == rows.Claimed {
			p.try(number(row), row.Mark.Fence)
		}
	}
	if p.out.Traced() {
		p.tell()
	}
	at, of := map[int]*Row[item]{}, map[string]*Row[item]{}
	for row, u := range p.working {
		if u.Dead() || row.Err() != nil {
			continue
		}
		if other := at[row.Doc.ID]; other != nil {
			p.violated(ruleTwo, "row %d is worked on under fences %d and %d", row.Doc.ID,
				min(row.Fence(), other.Fence()), max(row.Fence(), other.Fence()))
		}
		at[row.Doc.ID] = row
		key := p.key(row.Doc.ID)
		if other := of[key]; key != "" && other != nil && other.Doc.ID != row.Doc.ID {
			p.violated(ruleKey, "rows %d and %d of %s are worked on", min(row.Doc.ID, other.Doc.ID),
				max(row.Doc.ID, other.Doc.ID), key)
		}
		of[key] = row
	}
}

// settled returns how long all rows have been done or dead. Before the end of the faults, it
// returns zero.
func (p *play) settled(now time.Duration) time.Duration {
	if !p.out.Healed() {
		return 0
	}
	if c, _ := p.store.Count(context.Background(), 0); p.since == 0 || c.Ready+c.Claimed+c.Retrying > 0 {
		p.since = now
	}
	return now - p.since
}

func (p *play) try(id int, fence int64) {
	if p.tried[id] == nil {
		p.tried[id] = map[int64]bool{}
	}
	p.tried[id][fence] = true
}

func (p *play) tell() {
	for _, row := range p.store.All() {
		id, m := number(row), row.Mark
		now := fmt.Sprintf("%s in %s, fence %d, attempts %d", m.State, m.Slot, m.Fence, m.Attempts)
		if was := p.marks[id]; was != now {
			p.marks[id] = now
			p.out.Say("row %d is %s", id, now)
		}
	}
}

func (p *play) last() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, row := range p.store.All() {
		id, dones := number(row), p.store.Dones(row.ID)
		p.counts["claims"] += row.Mark.Fence
		p.counts[string(row.Mark.State)]++
		if dones > 1 {
			p.violated(ruleOnce, "row %d was marked done %d times", id, dones)
		}
		switch row.Mark.State {
		case rows.Done:
			if p.begun[id] == 0 {
				p.violated(ruleOnce, "row %d is done and was never begun", id)
			}
		case rows.Dead:
			if tries := len(p.tried[id]); tries < p.cfg.MaxAttempts {
				p.violated(ruleTried, "row %d is dead (%s) and was tried %d times, fence %d", id,
					row.Mark.Error, tries, row.Mark.Fence)
			}
		default:
			p.violated(ruleDone, "row %d is %s: %+v", id, row.Mark.State, row.Mark)
		}
	}
}

// A way is a queue's connection to its store. Every command is an event of the simulation.
type way struct {
	*gate
	u       *simulation.User
	streams bool
}

func (s way) Watch(ctx context.Context, tell func(rows.Event)) error {
	if !s.streams {
		return rows.ErrNoStream
	}
	return s.gate.Store.Watch(ctx, func(event rows.Event) { s.u.Notice(func() { tell(event) }) })
}

// reads are the commands that change nothing.
var reads = []string{"first", "claimed", "current", "slots", "clock", "odd", "held", "paused", "later"}

func op(command string) fault.Op { return fault.Op("rows: " + command) }

// user runs a queue in a simulated process. At random times it closes the queue and opens a new
// one.
func (p *play) user(u *simulation.User, streams bool) {
	for !u.Shut() {
		g := &gate{Store: p.store}
		g.Set(func(ctx context.Context, command string, apply func() error) error {
			return u.Command(ctx, op(command), !slices.Contains(reads, command), apply)
		})
		q := &Queue[item]{e: newEngine(u.Context(), u.Manager(), way{g, u, streams}, "db.rows", p.cfg)}
		ctx, cancel := context.WithCancel(u.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = q.Run(ctx, func(ctx context.Context, row *Row[item]) error {
				return p.handle(ctx, u, q, row)
			})
		}()
		after := time.Duration(u.Chance.IntN(3600)) * time.Second
		if clock.Sleep(u.Clock(), after, ended) && p.out.Healed() {
			<-ended
		}
		if u.Chance.IntN(2) == 0 {
			cancel()
		}
		limit := time.Duration(u.Chance.IntN(2)) * time.Minute
		closing, done := context.WithTimeout(context.Background(), limit)
		_ = q.Close(closing)
		done()
		cancel()
		<-ended
		_ = q.Close(context.Background()) // after an error, other processes rescue the rows
	}
}

func (p *play) handle(ctx context.Context, u *simulation.User, q *Queue[item],
	row *Row[item]) error {
	id := row.Doc.ID
	p.enter(u, row)
	defer p.leave(row)
	r := rand.New(rand.NewPCG(p.seed, uint64(id)<<32|uint64(row.Fence())))
	healed := p.out.Healed()
	if p.poison[id] && !healed {
		p.mu.Lock()
		p.counts["crashes"]++
		p.mu.Unlock()
		u.Die(time.Duration(1+r.IntN(60)) * time.Second)
		return errCut
	}
	deaf := r.IntN(3) == 0
	for range 1 + r.IntN(8) {
		switch d := time.Duration(r.IntN(8000)) * time.Millisecond; {
		case deaf && !u.Sleep(d):
			return errCut
		case !deaf && !clock.Sleep(u.Clock(), d, ctx.Done()):
			return context.Cause(ctx)
		}
	}
	if id < p.n && id%10 == 0 { // an earlier attempt may have added the row
		_ = q.Add(context.WithoutCancel(ctx), item{ID: p.n + id, Child: true, Chain: p.key(id)})
	}
	if healed {
		return nil
	}
	switch r.IntN(12) {
	case 0, 1:
		return errors.New("bad luck")
	case 2:
		panic("bad luck")
	case 3:
		return Snooze(time.Second)
	}
	return nil
}

func (p *play) enter(u *simulation.User, row *Row[item]) {
	id, fence := row.Doc.ID, row.Fence()
	p.out.Say("%s begins row %d, fence %d, attempt %d", u, id, fence, row.Attempt())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts["begun"]++
	p.begun[id]++
	p.try(id, fence)
	p.first(id, fence)
	if fence == p.fences[id] {
		p.violated(ruleFence, "row %d was given twice with fence %d", id, fence)
	}
	p.fences[id] = max(p.fences[id], fence)
	p.working[row] = u
}

func (p *play) leave(row *Row[item]) {
	p.out.Say("row %d, fence %d is left", row.Doc.ID, row.Fence())
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.working, row)
}
