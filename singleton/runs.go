package singleton

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// ErrNeverRan is returned by RunNow and ForgetFuture if there is no record of the name: no process
// has run it.
var ErrNeverRan = errors.New("singleton: no process has run it")

// RunNow requests a round of the loop of this name, in any process, as soon as it may begin. It
// needs Name and Store of l. A round that runs continues, and the requested round follows it.
// Several requests before it begins are one round. It is the next round, also after failures, and
// Every counts from it. Settings that stop rounds stop this one, too.
//
// The process that holds the lock reads the request within a minute, or at the end of its round.
// RunNow does not wait for it. If no process runs the loop, the request waits for the next one.
//
// Errors: ErrBadArgument; [ErrNeverRan]; the errors of the store, after which the request may be
// stored; [ErrChanged] if the record changed all the time. Two commands.
func (l Loop) RunNow(ctx context.Context) error { return runNow(ctx, l.Store, l.Name, KindLoop) }

// RunNow requests a slot of the schedule of this name as soon as one may begin, as the method of
// [Loop] does. Its Time is its beginning, by the server's clock; a slot of the schedule
// that is due by then is the one. The next slot is the next of the schedule after it.
func (s Slots) RunNow(ctx context.Context) error { return runNow(ctx, s.Store, s.Name, KindSlots) }

func runNow(ctx context.Context, store Store, name string, kind Kind) (err error) {
	if ctx == nil || store == nil || name == "" {
		return bad("the context or the Store is nil, or the Name is empty")
	}
	const tries = 5
	for range tries {
		rec, err := recordOf(ctx, store, name)
		switch {
		case err != nil:
			return err
		case rec.Kind != kind:
			return bad("%q is of the kind %s, not %s", catalog.Printable(name, 200), rec.Kind, kind)
		case rec.asked():
			return nil
		}
		if err = store.Ask(ctx, name, rec.rev); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("singleton: run %q now: %w", catalog.Printable(name, 200), ErrChanged)
}

// ForgetFuture repairs the record of a schedule after the server's clock was ahead: if the latest
// slot is later than the server's clock, it becomes the present time, and ForgetFuture returns
// true. Slots that began under the wrong clock begin again at their time. Call it when the server's
// clock is right; a running holder reads the repaired record within a minute. Three commands.
//
// Errors: ErrBadArgument; [ErrNeverRan]; the errors of the store; [ErrChanged] or [ErrStale] if the
// holder changes the record at the same time: call it again.
func ForgetFuture(ctx context.Context, store Store, name string) (bool, error) {
	if ctx == nil || store == nil || name == "" {
		return false, bad("the context or the Store is nil, or the name is empty")
	}
	rec, err := recordOf(ctx, store, name)
	if err != nil {
		return false, err
	}
	if rec.Kind != KindSlots {
		return false, bad("%q is of the kind %s, not %s", catalog.Printable(name, 200), rec.Kind, KindSlots)
	}
	// The reply has the server's clock.
	raw, err := store.Change(ctx, Change{Name: name, Fence: rec.Fence, Rev: rec.rev})
	if err == nil {
		rec, err = parseRecord(raw)
	}
	if err != nil || !rec.Slot.After(rec.seen) {
		return false, err
	}
	_, err = store.Change(ctx, Change{Name: name, Fence: rec.Fence, Rev: rec.rev,
		Set: bson.D{e("next", time.Time{})}, Dates: []string{"slot"}})
	return err == nil, err
}

func recordOf(ctx context.Context, store Store, name string) (Status, error) {
	raws, err := store.Records(ctx)
	if err != nil {
		return Status{}, err
	}
	for _, raw := range raws {
		if id, _ := raw.Lookup("_id").StringValueOK(); id == name {
			return parseRecord(raw)
		}
	}
	return Status{}, fmt.Errorf("%w: %q", ErrNeverRan, catalog.Printable(name, 200))
}

// asked reports whether a round was asked for since the latest began.
func (s Status) asked() bool { return s.asks > s.answered }

// RunsKept is how many of the latest rounds a record has.
const RunsKept = 20

// A PastRun is one round of a loop, or one attempt of a slot. Its times are of the server's clock,
// give or take a round trip.
type PastRun struct {
	State   State     // Running, Done, Failed or Interrupted
	Process string    // that began it
	Fence   int64     // of its lock
	Slot    time.Time // of a schedule
	Attempt int64     // the same
	Begun   time.Time
	Ended   time.Time     // zero while it runs, and of one that was interrupted
	Took    time.Duration // by the monotonic clock of the process
	Error   string
}

// beginning is the field runs with a round that begins.
func (r *runner) beginning(t *tenure, slot time.Time, attempt int) bson.E {
	return written(append(interrupted(t.rec.Runs), PastRun{State: Running,
		Process: t.guard.Process(), Fence: t.guard.Fence(), Slot: slot, Attempt: int64(attempt),
		Begun: r.now(t)}))
}

// interrupted are the runs when the one that runs has no end.
func interrupted(runs []PastRun) []PastRun {
	runs = slices.Clone(runs)
	if n := len(runs); n > 0 && runs[n-1].State == Running {
		runs[n-1].State = Interrupted
	}
	return runs
}

// over is the field runs with the end of the last one.
func over(runs []PastRun, state State, text string, took time.Duration) bson.E {
	runs = slices.Clone(runs)
	if n := len(runs); n > 0 && runs[n-1].State == Running {
		last := &runs[n-1]
		last.State, last.Error = state, catalog.Printable(text, 200)
		last.Took, last.Ended = took, last.Begun.Add(took)
	}
	return written(runs)
}

// written is the field of the latest runs.
func written(runs []PastRun) bson.E {
	list := bson.A{}
	for _, run := range runs[max(0, len(runs)-RunsKept):] {
		doc := bson.D{e("state", run.State), e("process", run.Process),
			e("fence", run.Fence), e("begun", run.Begun)}
		if !run.Slot.IsZero() {
			doc = append(doc, e("slot", run.Slot), e("attempt", run.Attempt))
		}
		if !run.Ended.IsZero() {
			doc = append(doc, e("ended", run.Ended),
				e("tookMicros", run.Took.Microseconds()))
		}
		if run.Error != "" {
			doc = append(doc, e("error", run.Error))
		}
		list = append(list, doc)
	}
	return e("runs", list)
}

// runs reads them.
func (f fields) runs() (runs []PastRun) {
	v := f.lookup("runs")
	if v.Type == 0 {
		return nil
	}
	list, ok := v.ArrayOK()
	if !ok {
		f.fail("runs", "must be an array, not %s", kindOf(v))
		return nil
	}
	values, err := list.Values()
	if err != nil || len(values) > 10*RunsKept {
		f.fail("runs", "cannot be read, or is longer than a process writes it")
		return nil
	}
	for i, value := range values {
		doc, ok := value.DocumentOK()
		if !ok {
			f.fail("runs", "must have documents only, not %s", kindOf(value))
			return nil
		}
		in := f.within(fmt.Sprintf("runs.%d", i), doc)
		runs = append(runs, PastRun{State: State(in.text("state")), Process: in.text("process"),
			Fence: in.count("fence"), Slot: in.date("slot"), Attempt: in.count("attempt"),
			Begun: in.date("begun"), Ended: in.date("ended"),
			Took: time.Duration(in.count("tookMicros")) * time.Microsecond, Error: in.text("error")})
	}
	return runs
}
