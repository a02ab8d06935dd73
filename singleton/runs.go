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

// ErrNeverRan is returned by RunNow and ForgetFuture if no process has run a loop or schedule with
// this name.
var ErrNeverRan = errors.New("singleton: no process has run it")

// RunNow requests an additional round of the loop with the name l.Name, and does not wait for it.
// RunNow uses only the fields Name and Store. The holder of the lock reads the request within a
// minute, or at the end of its current round. It begins the round as soon as the settings permit a
// round, without the pause after failures. The next regular round is due one interval later.
// Several requests before the additional round cause only one round.
//
// RunNow sends two commands. If the holder changes the record between the two commands, RunNow
// tries again, up to five times in all.
//
// Errors: [ErrBadArgument]; [ErrNeverRan]; [ErrChanged] if the record changed during every try; the
// errors of the store. After an error of the store, the request may be stored.
func (l Loop) RunNow(ctx context.Context) error { return runNow(ctx, l.Store, l.Name, KindLoop) }

// RunNow requests an additional slot of the schedule with the name s.Name, see [Loop.RunNow]. The
// slot begins as soon as the settings permit a slot. The field Slot.Time is the server's time at
// the beginning of the slot. If a slot of the schedule is due at that time, it runs instead of the
// additional slot. Afterwards the schedule continues with its next slot.
func (s Slots) RunNow(ctx context.Context) error { return runNow(ctx, s.Store, s.Name, KindSlots) }

func runNow(ctx context.Context, store Store, name string, kind Kind) (err error) {
	const tries = 5
	for range tries {
		rec, err := recordOf(ctx, store, name, kind)
		if err != nil || rec.asked() {
			return err
		}
		if err = store.Ask(ctx, name, rec.rev); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("singleton: run %q now: %w", catalog.Printable(name, 200), ErrChanged)
}

// ForgetFuture repairs the record of a schedule after the server's clock was ahead. Call it when
// the server's clock is right again. If the latest slot is after the server's time, ForgetFuture
// sets the latest slot to the server's time and returns true. A slot that began too early then
// begins again at its time. A running holder reads the repaired record within a minute.
// ForgetFuture sends up to three commands.
//
// Errors: [ErrBadArgument]; [ErrNeverRan]; the errors of the store; [ErrChanged] or [ErrStale] if
// the holder changes the record at the same time. After [ErrChanged] or [ErrStale], call
// ForgetFuture again.
func ForgetFuture(ctx context.Context, store Store, name string) (bool, error) {
	rec, err := recordOf(ctx, store, name, KindSlots)
	if err != nil {
		return false, err
	}
	// This change updates only the fence, the revision and the field "seen". The reply contains the
	// server's time.
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

// recordOf reads the record of a loop or schedule, and checks its kind.
func recordOf(ctx context.Context, store Store, name string, kind Kind) (rec Status, err error) {
	if ctx == nil || store == nil || name == "" {
		return rec, bad("the context or the Store is nil, or the Name is empty")
	}
	raws, err := store.Records(ctx)
	if err != nil {
		return rec, err
	}
	for _, raw := range raws {
		if id, _ := raw.Lookup("_id").StringValueOK(); id != name {
			continue
		}
		if rec, err = parseRecord(raw); err == nil && rec.Kind != kind {
			err = bad("%q is of the kind %s, not %s", catalog.Printable(name, 200), rec.Kind, kind)
		}
		return rec, err
	}
	return rec, fmt.Errorf("%w: %q", ErrNeverRan, catalog.Printable(name, 200))
}

// asked reports whether RunNow has requested a round after the beginning of the latest round.
func (s Status) asked() bool { return s.asks > s.answered }

// RunsKept is the maximum number of past rounds in a record.
const RunsKept = 20

// A PastRun is one round of a loop, or one attempt of a slot. Begun and Ended are times of the
// server's clock, accurate to a round trip.
type PastRun struct {
	State   State         `bson:"state"`             // Running, Done, Failed or Interrupted
	Process string        `bson:"process"`           // the process that began the round
	Fence   int64         `bson:"fence"`             // the fence of the process's lock
	Slot    time.Time     `bson:"slot,omitempty"`    // the time of a slot; zero for a loop
	Attempt int64         `bson:"attempt,omitempty"` // the attempt of a slot; zero for a loop
	Begun   time.Time     `bson:"begun"`
	Ended   time.Time     `bson:"ended,omitempty"` // zero while the round runs, and if interrupted
	Took    time.Duration `bson:"-"`               // by the monotonic clock of the process
	Error   string        `bson:"error,omitempty"`
}

// beginning returns the field "runs" with an additional round that begins now.
func (r *runner) beginning(t *tenure, slot time.Time, attempt int) bson.E {
	return written(append(interrupted(t.rec.Runs), PastRun{State: Running,
		Process: t.guard.Process(), Fence: t.guard.Fence(), Slot: slot, Attempt: int64(attempt),
		Begun: r.now(t)}))
}

// interrupted returns a copy of the given rounds. If the last round has the state Running, its
// state in the copy is Interrupted.
func interrupted(runs []PastRun) []PastRun {
	runs = slices.Clone(runs)
	if n := len(runs); n > 0 && runs[n-1].State == Running {
		runs[n-1].State = Interrupted
	}
	return runs
}

// over returns the field "runs" with the end of the last round.
func over(runs []PastRun, state State, text string, took time.Duration) bson.E {
	runs = slices.Clone(runs)
	if n := len(runs); n > 0 && runs[n-1].State == Running {
		last := &runs[n-1]
		last.State, last.Error = state, catalog.Printable(text, 200)
		last.Took, last.Ended = took, last.Begun.Add(took)
	}
	return written(runs)
}

// A storedRun is an element of the field "runs".
type storedRun struct {
	PastRun    `bson:",inline"`
	TookMicros int64 `bson:"tookMicros,omitempty"`
}

// written returns the field "runs" with the latest rounds, at most RunsKept.
func written(runs []PastRun) bson.E {
	list := []storedRun{}
	for _, run := range runs[max(0, len(runs)-RunsKept):] {
		list = append(list, storedRun{run, run.Took.Microseconds()})
	}
	return e("runs", list)
}

func (f fields) runs() (runs []PastRun) {
	var list []storedRun
	if v := f.raw.Lookup("runs"); v.Type != 0 && v.Unmarshal(&list) != nil {
		f.fail("runs", "must be an array of rounds, each with the types that a process writes")
	}
	for _, run := range list {
		run.Took = time.Duration(run.TookMicros) * time.Microsecond
		runs = append(runs, run.PastRun)
	}
	return runs
}
