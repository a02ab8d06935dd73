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

// Counts is the number of a queue's rows in each state.
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	Refused                              int64 // rows that the server refuses to change; this process tries them again
	Later                                int64 // ready rows that are not due or have no date, see [Config].Due
	// Odd is the number of rows that can never be claimed, see [Admin.Odd]. No other field counts
	// them, except Dead or Done if the state is a list that contains it.
	Odd int64
}

// An Info is a row as stored. A zero time is unknown.
type Info struct {
	ID        bson.RawValue
	Doc       bson.Raw // the whole document
	State     State
	Attempts  int
	Errors    []Failure // the last ten, the oldest first
	LastError string    // for a dead row, why it is dead
	NotBefore time.Time // when a retrying row is due
	DoneAt    time.Time
	DeadAt    time.Time
}

func infoOf(row rows.Row) Info {
	m := row.Mark
	return Info{row.ID, row.Doc, State(m.State), int(m.Attempts), failuresOf(m), m.Error, m.NotBefore,
		m.DoneAt, m.DeadAt}
}

// An Admin lists, counts and changes the rows of a queue. It needs no Manager. Its methods return
// ErrConfig, a *distlock.PrivilegeError, or an error of the driver.
type Admin struct {
	store     *rows.Mongo
	cfg       Config
	namespace string
}

// NewAdmin returns an Admin for a queue in coll, or a *ConfigError. It does no I/O.
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

// check returns a *ConfigError if ctx is nil, or if state is not one of the states in the last
// parameter.
func check(ctx context.Context, state State, of ...State) error {
	var list problems
	list.add(ctx == nil, noContext)
	list.add(!slices.Contains(of, state), "the state is %q, must be one of %q", state, of)
	return list.err()
}

// List returns the rows in a state. For a row that it cannot parse, it returns the ID, the Doc and
// an error, and continues. Any other error ends the list.
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

// counted counts the rows in each state. The parameter refused becomes Counts.Refused.
func counted(ctx context.Context, store rows.Store, refused int64) (Counts, error) {
	if err := usable(ctx); err != nil {
		return Counts{}, err
	}
	d, err := store.Count(ctx, 0)
	d.Refused = refused
	return Counts(d.Counts), err
}

// Retry makes the dead rows with these _ids ready and resets their attempts. It returns the number
// of rows that it changed.
func (a *Admin) Retry(ctx context.Context, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, StateDead, ids)
	if err != nil {
		return 0, err
	}
	return a.store.Retry(ctx, raw)
}

// RetryAll makes all dead rows ready and resets their attempts. It sends about eleven commands per
// thousand rows, and returns the number of rows that it changed.
func (a *Admin) RetryAll(ctx context.Context) (n int, err error) {
	var ids []bson.RawValue
	var refused error // the server changes the other rows
	flush := func() error {
		one, err := a.store.Retry(ctx, ids)
		n, ids = n+one, nil
		if is[*rows.RefusedError](err) {
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

// Delete removes the documents of the rows with these _ids. It keeps rows that are not in the given
// state, which must be StateDead or StateDone. It returns the number of removed documents.
func (a *Admin) Delete(ctx context.Context, state State, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, state, ids)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	return a.store.Remove(ctx, rows.State(state), raw)
}

// Purge removes the documents of rows that have been in a state for longer than olderThan, by the
// server's clock. If olderThan is 0, it removes all rows in that state. The state must be StateDead
// or StateDone. Purge sends two commands per thousand rows.
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

// Odd describes up to twenty odd rows, which can never be claimed or ended. Their field, key or due
// date has a wrong type or value, or they are claimed without the name of a slot.
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

// Repair makes up to 1,000 odd claimed rows ready and resets their attempts. A row with a wrong
// fence stays odd. Repair returns the number of rows that it changed.
func (a *Admin) Repair(ctx context.Context) (int, error) {
	if err := usable(ctx); err != nil {
		return 0, err
	}
	return a.store.Repair(ctx)
}

// Cancel makes a row dead with the error "cancelled". It returns ErrOver if the row is dead, done
// or gone. If a handler works on the row, the handler's context ends within about 5 s. Once the
// handler has returned, the row is dead and OnDead is called.
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

// SetPaused pauses or resumes the queue. All processes notice a pause within about a minute, and
// its end within about 10 s. Running handlers continue.
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

// rawIDs checks ctx and state, and returns ids as raw values.
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
