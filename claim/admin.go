package claim

import (
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

// Counts stores the number of rows in each state. Ready, Claimed, Retrying and Later do not count
// odd rows, see [Admin.Odd].
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	Refused                              int64 // rows that this process could not change
	Later                                int64 // rows that are not due yet, or have no due time
	Odd                                  int64 // rows that can never be claimed or ended
}

// An Info describes a row. Times that the row does not have are zero.
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

// An Admin lists, counts and changes rows without a Manager. Errors: *ConfigError for a nil context
// or a wrong state; *distlock.PrivilegeError.
type Admin struct {
	store     *rows.Mongo
	cfg       Config
	namespace string
}

// NewAdmin returns an Admin for the queue that cfg describes. It does no I/O. If cfg is wrong or
// coll is nil, it returns a *ConfigError.
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

// List iterates over the rows in the given state. If the state of a row is a list, it yields an
// error and the ID and Doc of the row. Any other error is the last.
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
func (a *Admin) Count(ctx context.Context) (Counts, error) {
	if err := usable(ctx); err != nil {
		return Counts{}, err
	}
	d, err := a.store.Count(ctx, 0)
	return Counts(d.Counts), err
}

// Retry makes dead rows ready with no attempts, and returns their number.
func (a *Admin) Retry(ctx context.Context, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, StateDead, ids)
	if err != nil {
		return 0, err
	}
	return a.store.Retry(ctx, raw)
}

// RetryAll is Retry for all dead rows, usually with one command. If the server refuses to change a
// row, RetryAll changes the other rows and then returns an error, and the number may be too small.
func (a *Admin) RetryAll(ctx context.Context) (n int, err error) {
	if err := usable(ctx); err != nil {
		return 0, err
	}
	return a.store.RetryAll(ctx)
}

// Delete removes the documents of the given rows in the given state, StateDead or StateDone. It
// returns their number.
func (a *Admin) Delete(ctx context.Context, state State, ids ...any) (int, error) {
	raw, err := rawIDs(ctx, state, ids)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	return a.store.Remove(ctx, rows.State(state), time.Time{}, raw)
}

// Purge is Delete for the rows that have been in the given state for longer than olderThan by the
// server's clock. If olderThan is zero, it removes all of them. It sends two commands per thousand
// rows.
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

// Odd describes up to twenty odd rows, which can never be claimed or ended.
func (a *Admin) Odd(ctx context.Context) (problems []string, err error) {
	if err := usable(ctx); err != nil {
		return nil, err
	}
	odd, err := a.store.Odd(ctx, 0)
	for _, one := range odd {
		problems = append(problems, one.Error())
	}
	return problems, err
}

// Repair makes claimed rows without a valid slot or session ready, as Retry does. A row with a
// malformed fence still cannot be claimed.
func (a *Admin) Repair(ctx context.Context) (int, error) {
	if err := usable(ctx); err != nil {
		return 0, err
	}
	return a.store.Repair(ctx)
}

// Cancel makes a row dead with the error "cancelled". If a handler works on it, the handler's
// context ends within about 5 s. The row is dead when the handler returns, or done if the handler
// succeeded first. If the row is dead, done or gone, Cancel returns ErrOver.
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

// SetPaused pauses or resumes the queue. Claims stop within about a minute, or begin within
// about 10 s. Running handlers continue.
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
			return nil, fmt.Errorf("claim: %v is not an _id: %w", id, err)
		}
		raw = append(raw, bson.RawValue{Type: kind, Value: value})
	}
	return raw, nil
}
