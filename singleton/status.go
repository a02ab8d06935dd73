package singleton

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Kind is the kind of a record: a loop or a schedule.
type Kind string

// The kinds of a record.
const (
	KindLoop  Kind = "loop"
	KindSlots Kind = "slots"
)

// A State is the state of a round.
type State string

// The states of a round.
const (
	// Waiting means that no round has begun yet.
	Waiting State = ""
	// Running means that the round has begun and no end is recorded. Either the round still runs, or
	// its process has died.
	Running State = "running"
	// Done means that the round returned without an error. Failed means that the round returned an
	// error or panicked.
	Done   State = "done"
	Failed State = "failed"
	// Interrupted means that a later holder found the round without a recorded end.
	Interrupted State = "interrupted"
	// Skipped means that the slot was missed and will not run.
	Skipped State = "skipped"
)

// A Status is the state of a loop or a schedule. All its times are times of the server's clock.
type Status struct {
	Name    string
	Kind    Kind
	Process string // the process that holds, or last held, the lock
	Fence   int64  // the fence of the process's lock
	State   State
	// Slot is the time of the latest slot that has begun or was skipped. Before the first slot, it is
	// the time after which slots run. For a loop it is zero.
	Slot time.Time
	// Attempt is the number of attempts at the latest slot. It is larger than 1 only with Slots.Rerun.
	Attempt int64
	Begun   time.Time // the beginning of the latest round; zero without one
	Ended   time.Time // the end of the latest finished round
	// Next is the due time of the next round. It is not valid while a round runs. If [BegunSlot.End]
	// recorded the latest round, Next is zero.
	Next      time.Time
	Rounds    int64     // finished rounds
	Failures  int64     // consecutive failed rounds up to the latest round
	Missed    int64     // slots that did not run
	LastError string    // the error of the latest round or of the settings; empty after a success
	Runs      []PastRun // the latest RunsKept rounds, the oldest first

	// Settings are the current settings. If they cannot be parsed, SettingsErr is set and no round
	// begins.
	Settings    Settings
	SettingsErr error
	// Err is the error if the record cannot be parsed. Then only Name and the settings are set, and
	// Name may be empty.
	Err error

	rev      int64
	seen     time.Time // the server's clock when the record was written
	runFence int64     // the fence of the holder that began the latest round
	asks     int64     // the number of requests by RunNow
	answered int64     // the value of "asks" when the latest round began
}

// List returns the state of each loop and schedule in a store, sorted by name. It sends two
// commands.
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

// parseRecord parses a record. If the record is malformed, the error is a *MalformedError, and the
// Status contains only the name.
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
	switch s.Kind {
	case KindLoop, KindSlots, "": // a new record has no kind until the second write of its holder
	default:
		f.fail("kind", "must be %q or %q, not %q", KindLoop, KindSlots, s.Kind)
	}
	switch s.State {
	case Waiting, Running, Done, Failed, Interrupted, Skipped:
	default:
		f.fail("state", "is %q, which is not a state", s.State)
	}
	if s.seen.IsZero() {
		f.fail("seen", "must be a Date, not missing")
	}
	if *f.err != nil {
		return Status{Name: f.id}, *f.err
	}
	return s, nil
}
