package claim

import (
	"cmp"
	"context"
	"errors"
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

// Counts are the rows of a queue by state.
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	Refused                              int64 // rows of this process that the server refuses to change; it tries them again
	Later                                int64 // ready and not due, or without a date, see [Config].Due
	Odd                                  int64 // rows that can never be claimed, see [Admin.Odd]; no other number has them
}

// An Info is a row as it is stored. Zero times are not known.
type Info struct {
	ID        bson.RawValue
	Doc       bson.Raw // the whole document
	State     State
	Attempts  int
	Errors    []Failure // as of [Row.Errors]
	LastError string    // of a dead row the reason of its death
	NotBefore time.Time // when a retrying row is due
	DoneAt    time.Time
	DeadAt    time.Time
}

func infoOf(row rows.Row) Info {
	m := row.Mark
	return Info{row.ID, row.Doc, State(m.State), int(m.Attempts), failuresOf(m), m.Error, m.NotBefore,
		m.DoneAt, m.DeadAt}
}

// An Admin sees and changes the rows of a queue by hand. It needs no Manager. Its methods return
// ErrConfig, a *distlock.PrivilegeError, and the errors of the driver.
type Admin struct {
	store     *rows.Mongo
	cfg       Config
	namespace string
}

// NewAdmin returns an Admin, or a *ConfigError. No I/O.
func NewAdmin(coll *mongo.Collection, cfg Config) (*Admin, error) { return newAdmin(coll, cfg, nil) }

func newAdmin(coll *mongo.Collection, cfg Config, problems []string) (*Admin, error) {
	cfg = cfg.withDefaults()
	list := append(cfg.problems(), problems...)
	if coll == nil {
		list = append(list, "the collection is nil")
	}
	if list != nil {
		return nil, &ConfigError{Problems: list}
	}
	store := rows.NewMongo(coll, rows.Options{Field: cfg.Field, Filter: cfg.Filter, Due: cfg.Due,
		Key: cfg.Key, Keeps: cfg.KeepDone > 0})
	return &Admin{store, cfg, coll.Database().Name() + "." + coll.Name()}, nil
}

// check refuses a nil context, and states other than these.
func check(ctx context.Context, state State, of ...State) error {
	var list []string
	if ctx == nil {
		list = append(list, noContext)
	}
	if !slices.Contains(of, state) {
		list = append(list, fmt.Sprintf("the state is %q, must be one of %q", state, of))
	}
	if list != nil {
		return &ConfigError{Problems: list}
	}
	return nil
}

// List returns the rows of a state. A row that cannot be parsed comes with an error, its ID and its
// Doc; another error is the last.
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

// Count counts the rows. Seven commands at most.
func (a *Admin) Count(ctx context.Context) (Counts, error) {
	if err := usable(ctx); err != nil {
		return Counts{}, err
	}
	d, err := a.store.Count(ctx, 0)
	return Counts(d.Counts), err
}

// Retry makes dead rows ready, from their first attempt. An id is an _id.
func (a *Admin) Retry(ctx context.Context, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, StateDead, ids)
	if err != nil {
		return 0, err
	}
	return a.store.Retry(ctx, raw)
}

// RetryAll is Retry of all dead rows. Two commands for a thousand.
func (a *Admin) RetryAll(ctx context.Context) (n int, err error) {
	var ids []bson.RawValue
	var refused *rows.RefusedError // the server changes the other rows
	flush := func() error {
		one, err := a.store.Retry(ctx, ids)
		n, ids = n+one, nil
		if errors.As(err, &refused) {
			return nil
		}
		return err
	}
	for row, err := range a.List(ctx, StateDead) {
		var bad *rows.Malformed
		if err != nil && !errors.As(err, &bad) {
			return n, err
		}
		if ids = append(ids, row.ID); len(ids) == 1000 {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	if err = flush(); err == nil && refused != nil {
		err = fmt.Errorf("claim: retry dead rows: %w", refused)
	}
	return n, err
}

// Delete removes the documents of rows that are dead, or done.
func (a *Admin) Delete(ctx context.Context, state State, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, state, ids)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	return a.store.Remove(ctx, rows.State(state), raw)
}

// Purge removes the documents of rows that have been dead, or done, for longer than a time by the
// server's clock; zero: all of them. Two commands for a thousand rows.
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

// Odd returns why rows can never be claimed, of twenty at most: a part of their field, their key or
// their due date has a wrong type, or no process has their claim.
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

// Repair makes odd claimed rows ready, from their first attempt, up to 1,000. A row with a wrong
// fence stays odd.
func (a *Admin) Repair(ctx context.Context) (int, error) {
	if err := usable(ctx); err != nil {
		return 0, err
	}
	return a.store.Repair(ctx)
}

// Cancel makes a row dead, with the error "cancelled", or returns ErrOver. The context of a handler
// that works on it ends within 5 s; then the row is dead, and OnDead is called.
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
	switch text := rows.Text(raw[0]); {
	case err != nil:
		return fmt.Errorf("claim: cancel row %s: %w", text, err)
	case left == "":
		return fmt.Errorf("%w: row %s is dead, done or gone", ErrOver, text)
	}
	return nil
}

// SetPaused pauses this queue in all processes within about a minute, or resumes it within 5 s.
// Handlers may finish.
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

// MissingIndexes returns the commands of the shell that create the missing indexes.
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

// rawIDs checks a call about rows, and returns their _ids as the server has them.
func rawIDs(ctx context.Context, state State, ids []any) (raw []bson.RawValue, err error) {
	err = check(ctx, state, StateDead, StateDone)
	for _, id := range ids {
		one, bad := rawID(id)
		raw, err = append(raw, one), cmp.Or(err, bad)
	}
	return raw, err
}

func rawID(id any) (bson.RawValue, error) {
	if raw, is := id.(bson.RawValue); is {
		return raw, nil
	}
	kind, value, err := bson.MarshalValue(id)
	if err != nil {
		return bson.RawValue{}, fmt.Errorf("claim: %v is no _id: %w", id, err)
	}
	return bson.RawValue{Type: kind, Value: value}, nil
}
