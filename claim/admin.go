package claim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/internal/rows"
)

// A State is the state of a row.
type State string

// The states of a row.
const (
	StateReady    = State(rows.Ready)
	StateClaimed  = State(rows.Claimed)
	StateRetrying = State(rows.Retrying)
	StateDead     = State(rows.Dead)
	StateDone     = State(rows.Done)
)

// Counts stores the number of a queue's rows in each state.
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	Refused                              int64 // rows that this process could not change
	Later                                int64 // rows that are not due yet, or have no due time
	// Odd is the number of rows that can never be claimed or ended, see [Admin.Odd]. Ready, Claimed,
	// Retrying and Later do not count odd rows. Dead and Done count an odd row if its state is a list
	// that contains "dead" or "done".
	Odd int64
}

// An Info describes a row. NotBefore, DoneAt and DeadAt are zero if the row has no such time.
type Info struct {
	ID        bson.RawValue
	Doc       bson.Raw // the whole document
	State     State
	Attempts  int
	Errors    []Failure // the last ten, the oldest first
	LastError string    // the text of the last failure
	NotBefore time.Time // when a retrying row is due
	DoneAt    time.Time
	DeadAt    time.Time
}

func infoOf(row rows.Row) Info {
	m := row.Mark
	return Info{row.ID, row.Doc, State(m.State), int(m.Attempts), failuresOf(m), m.Error, m.NotBefore,
		m.DoneAt, m.DeadAt}
}

// An Admin lists, counts and changes the rows of a queue. It works without a Manager. If a context
// is nil or a state is not allowed, its methods return a *ConfigError. If a privilege is missing,
// they return a *distlock.PrivilegeError.
type Admin struct {
	store     *rows.Mongo
	cfg       Config
	namespace string
}

// NewAdmin returns an Admin for a queue. The parameter cfg describes the queue, and coll is its
// collection. If cfg is wrong or coll is nil, NewAdmin returns a *ConfigError. It does no I/O.
func NewAdmin(coll *mongo.Collection, cfg Config) (*Admin, error) { return newAdmin(coll, cfg, nil) }

func newAdmin(coll *mongo.Collection, cfg Config, more problems) (*Admin, error) {
	cfg = cfg.withDefaults()
	list := append(cfg.problems(), more...)
	list.add(coll == nil, "the collection is nil")
	if err := list.err(); err != nil {
		return nil, err
	}
	store := rows.NewMongo(coll, rows.Options{Field: cfg.Field, Filter: cfg.Filter, Due: cfg.Due,
		Key: cfg.Key, Keeps: cfg.KeepDone > 0})
	return &Admin{store, cfg, coll.Database().Name() + "." + coll.Name()}, nil
}

func check(ctx context.Context, state State, of ...State) error {
	var list problems
	list.add(ctx == nil, noContext)
	list.add(!slices.Contains(of, state), "the state is %q, must be one of %q", state, of)
	return list.err()
}

// List iterates over the rows in the given state and their documents. If it cannot parse a row, it
// yields the ID and the Doc of that row with an error, and continues. Any other error ends the
// iteration.
func (a *Admin) List(ctx context.Context, state State) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		err := check(ctx, state, StateReady, StateClaimed, StateRetrying, StateDead, StateDone)
		if err != nil {
			yield(Info{}, err)
			return
		}
		for row, err := range a.store.List(ctx, rows.State(state)) {
			if !yield(infoOf(row), err) {
				return
			}
		}
	}
}

// Count counts the rows in each state. It sends at most nine commands.
func (a *Admin) Count(ctx context.Context) (Counts, error) { return counted(ctx, a.store, 0) }

func counted(ctx context.Context, store rows.Store, refused int64) (Counts, error) {
	if err := usable(ctx); err != nil {
		return Counts{}, err
	}
	d, err := store.Count(ctx, 0)
	d.Refused = refused
	return Counts(d.Counts), err
}

// Retry makes dead rows with the given _ids ready and resets their attempts. It returns the number
// of rows that it changed.
func (a *Admin) Retry(ctx context.Context, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, StateDead, ids)
	if err != nil {
		return 0, err
	}
	return a.store.Retry(ctx, raw)
}

// RetryAll makes all dead rows ready and resets their attempts. It sends about eleven commands per
// thousand rows. It returns the number of rows that it changed.
func (a *Admin) RetryAll(ctx context.Context) (n int, err error) {
	var ids []bson.RawValue
	var refused error // returned at the end, because the server changes the other rows
	flush := func() error {
		one, err := a.store.Retry(ctx, ids)
		n, ids = n+one, nil
		if isRefused(err) {
			refused, err = fmt.Errorf("claim: retry dead rows: %w", err), nil
		}
		return err
	}
	for row, err := range a.List(ctx, StateDead) {
		if err != nil && !is[*rows.Malformed](err) {
			return n, err
		}
		if ids = append(ids, row.ID); len(ids) == 1000 {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	err = flush()
	return n, cmp.Or(err, refused)
}

// Delete removes the documents of rows with the given _ids. It removes only rows in the given
// state, which must be StateDead or StateDone. Delete returns the number of removed documents.
func (a *Admin) Delete(ctx context.Context, state State, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, state, ids)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	return a.store.Remove(ctx, rows.State(state), time.Time{}, raw)
}

// Purge removes the documents of rows that have been in the given state for longer than olderThan,
// by the server's clock. The state must be StateDead or StateDone. If olderThan is zero, Purge
// removes all rows in that state. It sends two commands per thousand rows and returns the number of
// removed documents.
func (a *Admin) Purge(ctx context.Context, state State, olderThan time.Duration) (n int, err error) {
	if err := check(ctx, state, StateDead, StateDone); err != nil {
		return 0, err
	}
	if olderThan < 0 {
		return 0, fmt.Errorf("claim: purge rows older than %v: it must not be negative", olderThan)
	}
	var before time.Time
	if olderThan > 0 {
		now, err := a.store.Now(ctx)
		if err != nil {
			return 0, err
		}
		before = now.Add(-olderThan)
	}
	for {
		one, err := a.store.Purge(ctx, rows.State(state), before)
		if n += one; err != nil || one == 0 {
			return n, err
		}
	}
}

// Odd returns descriptions of up to twenty odd rows. An odd row can never be claimed or ended,
// because the package's field, the key or the due date in its document is malformed. An example is
// a claimed row that does not name the slot of its process.
func (a *Admin) Odd(ctx context.Context) (problems []string, err error) {
	if err := usable(ctx); err != nil {
		return nil, err
	}
	odd, err := a.store.Odd(ctx)
	for _, one := range odd {
		problems = append(problems, one.Error())
	}
	return problems, err
}

// Repair makes up to 1,000 rows ready that are claimed but have no valid slot or session, and
// resets their attempts. It returns the number of rows that it changed. A row with a malformed
// fence still cannot be claimed.
func (a *Admin) Repair(ctx context.Context) (int, error) {
	if err := usable(ctx); err != nil {
		return 0, err
	}
	return a.store.Repair(ctx)
}

// Cancel makes a row dead with the error "cancelled". If the row is dead or done, or its document
// is gone, Cancel returns ErrOver. If a handler works on the row, the context of the handler ends
// within about 5 s. When the handler has returned, the row becomes dead and OnDead is called. If
// the handler succeeds before its context ends, the row becomes done instead.
func (a *Admin) Cancel(ctx context.Context, id any) error {
	raw, err := rawIDs(ctx, StateDead, []any{id})
	if err != nil {
		return err
	}
	now, err := a.store.Now(ctx)
	if err != nil {
		return err
	}
	left, err := a.store.Cancel(ctx, now, raw[0])
	if err != nil {
		return fmt.Errorf("claim: cancel row %s: %w", rows.Text(raw[0]), err)
	}
	if left == "" {
		return fmt.Errorf("%w: row %s is dead, done or gone", ErrOver, rows.Text(raw[0]))
	}
	return nil
}

// SetPaused pauses or resumes the queue. When the queue is paused, the processes stop claiming rows
// within about a minute, and running handlers continue. When the queue is resumed, the processes
// claim rows again within about 10 s.
func (a *Admin) SetPaused(ctx context.Context, paused bool) error {
	if err := usable(ctx); err != nil {
		return err
	}
	return a.store.SetPaused(ctx, a.switchName(), paused)
}

func (a *Admin) switchName() string { return prefix + a.namespace + ":" + a.cfg.name() }

// Paused reports whether the queue is paused.
func (a *Admin) Paused(ctx context.Context) (bool, error) {
	if err := usable(ctx); err != nil {
		return false, err
	}
	return a.store.Paused(ctx, a.switchName())
}

// MissingIndexes returns the shell commands that create the missing indexes.
func (a *Admin) MissingIndexes(ctx context.Context) ([]string, error) {
	if err := usable(ctx); err != nil {
		return nil, err
	}
	return a.store.Missing(ctx)
}

// CreateIndexes creates the missing indexes.
func (a *Admin) CreateIndexes(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	return a.store.Prepare(ctx)
}

func rawIDs(ctx context.Context, state State, ids []any) (raw []bson.RawValue, err error) {
	if err := check(ctx, state, StateDead, StateDone); err != nil {
		return nil, err
	}
	for _, id := range ids {
		kind, value, err := bson.MarshalValue(id)
		if err != nil {
			return nil, fmt.Errorf("claim: %v is no _id: %w", id, err)
		}
		raw = append(raw, bson.RawValue{Type: kind, Value: value})
	}
	return raw, nil
}
