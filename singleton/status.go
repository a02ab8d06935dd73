package singleton

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Kind is the kind of a name: a loop or a schedule.
type Kind string

// The kinds.
const (
	KindLoop  Kind = "loop"
	KindSlots Kind = "slots"
)

// State is the state of the latest round.
type State string

// The states.
const (
	// Waiting: no round has started yet.
	Waiting State = ""
	// Running: its end is not recorded. It runs, or its process died in it.
	Running State = "running"
	// Done and Failed: it returned, without and with an error.
	Done   State = "done"
	Failed State = "failed"
	// Interrupted: a later holder found it Running. It did not run again.
	Interrupted State = "interrupted"
	// Skipped: the slot was missed and is not run.
	Skipped State = "skipped"
)

// A Status is the state of a loop or a schedule. All times are of the server's clock.
type Status struct {
	Name    string
	Kind    Kind
	Process string // the process that holds, or last held, the lock
	Fence   int64  // of that holding
	State   State
	// Slot is, of a schedule, the latest slot that has started or was skipped, or the time from which
	// slots count.
	Slot time.Time
	// Attempt is the number of attempts at that slot; more than one only with Slots.Rerun.
	Attempt int64
	Begun   time.Time // the beginning of the latest round; zero without one
	Ended   time.Time // the end of the latest finished round
	// Next is when the next round is due. Of a round that runs it is not known.
	Next      time.Time
	Rounds    int64     // finished rounds
	Failures  int64     // of the latest ones, without a success between
	Missed    int64     // slots that were not run
	LastError string    // of the latest round or of the settings; empty after a success
	Runs      []PastRun // the latest RunsKept rounds, the oldest first

	// Settings are the present settings. With SettingsErr, which names their problem, no round begins.
	Settings    Settings
	SettingsErr error
	// Err is the problem of a record that cannot be parsed. Then only Name is set, and may be empty.
	Err error

	rev      int64
	seen     time.Time // the server's clock when the record was written
	runFence int64     // of the holder that began the latest round
	asks     int64     // how often RunNow has asked for a round
	answered int64     // the value of asks that the holder of the latest round knew when it began
}

// List returns all loops and schedules of a store, in the order of names. Two commands.
func List(ctx context.Context, store Store) ([]Status, error) {
	if ctx == nil || store == nil {
		return nil, bad("the context or the store is nil")
	}
	raws, err := store.Records(ctx)
	if err != nil {
		return nil, err
	}
	list, names := make([]Status, len(raws)), make([]string, len(raws))
	for i, raw := range raws {
		list[i], err = parseRecord(raw)
		list[i].Err = err
		names[i] = list[i].Name
	}
	settings, err := store.Settings(ctx, names...)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		list[i].Settings, list[i].SettingsErr = ParseSettings(settings[name])
	}
	return list, nil
}

// parseRecord understands a document of singletons. Error: a *MalformedError; then there is only
// the name.
func parseRecord(raw bson.Raw) (Status, error) {
	f := open(RecordsCollection, raw)
	s := Status{
		Name: f.id, Kind: Kind(f.text("kind")), Process: f.text("process"), Fence: f.count("fence"),
		State: State(f.text("state")), Slot: f.date("slot"), Attempt: f.count("attempt"),
		Begun: f.date("begun"), Ended: f.date("ended"), Next: f.date("next"),
		Rounds: f.count("rounds"), Failures: f.count("failures"), Missed: f.count("missed"),
		LastError: f.text("lastError"), rev: f.count("rev"), seen: f.date("seen"),
		runFence: f.count("runFence"), asks: f.count("asks"), answered: f.count("answered"),
		Runs: f.runs(),
	}
	if s.Kind != KindLoop && s.Kind != KindSlots {
		f.fail("kind", "must be %q or %q, not %q", KindLoop, KindSlots, s.Kind)
	}
	switch s.State {
	case Waiting, Running, Done, Failed, Interrupted, Skipped:
	default:
		f.fail("state", "is %q, which is none of the states", s.State)
	}
	if s.seen.IsZero() {
		f.fail("seen", "must be a Date, not missing")
	}
	if err := f.err(); err != nil {
		return Status{Name: f.id}, err
	}
	return s, nil
}
