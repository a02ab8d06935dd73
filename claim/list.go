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

// A State is where a row stands.
type State string

// The states of a row.
const (
	StateReady    = State(rows.Ready)
	StateClaimed  = State(rows.Claimed)
	StateRetrying = State(rows.Retrying)
	StateDead     = State(rows.Dead)
	StateDone     = State(rows.Done)
)

// An Info is what stands in a row that nobody here has claimed.
type Info struct {
	ID       bson.RawValue
	Doc      bson.Raw // the whole document; for OnDead as it was claimed, where this process had it
	State    State
	Attempts int
	Errors   []Failure // as of [Row.Errors]
	// LastError is the text of the last failure, and of a dead row what it died of.
	LastError string
	// NotBefore is when a row that is retrying is due, DoneAt and DeadAt when a row was done or dead.
	// Zero where that is not said.
	NotBefore, DoneAt, DeadAt time.Time
}

func infoOf(row rows.Row) Info {
	m := row.Mark
	return Info{ID: row.ID, Doc: row.Doc, State: State(m.State), Attempts: int(m.Attempts),
		Errors: failuresOf(m), LastError: m.Error, NotBefore: m.NotBefore, DoneAt: m.DoneAt,
		DeadAt: m.DeadAt}
}

// List returns the rows of a state, those that the server finds first first; stop when you have
// enough. It needs no Manager; of cfg it uses Filter and Field, as do [Retry], [Delete] and
// [Purge]. One command for a hundred rows; no bound but ctx.
//
// Errors: a row whose field cannot be understood comes with one, its ID and its Doc, and others
// follow. What else may be is the last: a *ConfigError; a *distlock.PrivilegeError; those of the
// driver.
func List(ctx context.Context, coll *mongo.Collection, cfg Config,
	state State) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		queue, err := kept(ctx, coll, cfg, state, StateReady, StateClaimed, StateRetrying, StateDead,
			StateDone)
		if err != nil {
			yield(Info{}, err)
			return
		}
		for row, err := range queue.List(ctx, rows.State(state)) {
			if !yield(infoOf(row), err) {
				return
			}
		}
	}
}

// Retry makes dead rows ready, from their first attempt, and returns how many were dead. Their
// errors stay. An id is the _id of a document. One command; workers see them within [Config.Poll].
//
// Errors: as List.
func Retry(ctx context.Context, coll *mongo.Collection, cfg Config, ids ...any) (int, error) {
	queue, raw, err := byID(ctx, coll, cfg, StateDead, ids)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	return queue.Retry(ctx, raw)
}

// RetryAll is Retry of all rows that are dead. One command for a thousand, and one for a hundred.
func RetryAll(ctx context.Context, coll *mongo.Collection, cfg Config) (n int, err error) {
	queue, err := kept(ctx, coll, cfg, StateDead, StateDead)
	if err != nil {
		return 0, err
	}
	var ids []bson.RawValue
	var refused *rows.RefusedError // by the server: the others go on
	again := func() error {
		one, err := queue.Retry(ctx, ids)
		n, ids = n+one, ids[:0]
		if errors.As(err, &refused) {
			return nil
		}
		return err
	}
	for row, err := range queue.List(ctx, rows.Dead) {
		var bad *rows.Malformed
		if err != nil && !errors.As(err, &bad) {
			return n, err
		}
		if ids = append(ids, row.ID); len(ids) == mostBatch {
			if err := again(); err != nil {
				return n, err
			}
		}
	}
	if len(ids) > 0 {
		err = again()
	}
	if err == nil && refused != nil {
		err = fmt.Errorf("claim: retry dead rows: %w", refused)
	}
	return n, err
}

// Delete removes the documents of rows that are dead, or done, and says how many. One command.
//
// Errors: as List.
func Delete(ctx context.Context, coll *mongo.Collection, cfg Config, state State, ids ...any) (
	int, error) {
	queue, raw, err := byID(ctx, coll, cfg, state, ids)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	return queue.Remove(ctx, rows.State(state), raw)
}

// Purge removes the documents of rows that have been dead, or done, for longer than a time, and
// returns how many; zero: all of them. By the server's clock; rows that do not say since when are
// kept but by zero. One command, and two for a thousand rows; when ctx ends first, what was removed
// is counted.
//
// Errors: as List.
func Purge(ctx context.Context, coll *mongo.Collection, cfg Config, state State,
	olderThan time.Duration) (n int, err error) {
	queue, err := kept(ctx, coll, cfg, state, StateDead, StateDone)
	if err != nil {
		return 0, err
	}
	if olderThan < 0 {
		return 0, fmt.Errorf("claim: purge rows older than %v: it must not be negative", olderThan)
	}
	var before time.Time
	if olderThan > 0 {
		now, err := queue.Now(ctx)
		if err != nil {
			return 0, err
		}
		before = now.Add(-olderThan)
	}
	for {
		one, err := queue.Purge(ctx, rows.State(state), before)
		if n += one; err != nil || one == 0 {
			return n, err
		}
	}
}

// Odd tells of rows that no worker is given, ten of a kind at most, and why: their field says what
// it cannot, or cfg.Key is a list in them. It needs no Manager. Two commands at most.
//
// Errors: as List.
func Odd(ctx context.Context, coll *mongo.Collection, cfg Config) (problems []string, err error) {
	queue, err := kept(ctx, coll, cfg, StateReady, StateReady)
	if err != nil {
		return nil, err
	}
	odd, err := queue.Odd(ctx)
	for _, one := range odd {
		problems = append(problems, one.Error())
	}
	return problems, err
}

// kept is a collection as far as what stands in its rows goes, for calls about rows of some states.
func kept(ctx context.Context, coll *mongo.Collection, cfg Config, state State, of ...State) (
	*rows.Mongo, error) {
	var list []string
	if ctx == nil {
		list = append(list, noContext)
	}
	if !slices.Contains(of, state) {
		list = append(list, fmt.Sprintf("the state is %q, must be one of %q", state, of))
	}
	return opened(coll, cfg, list...)
}

// opened is the store of a collection, unless the configuration has problems, beside these.
func opened(coll *mongo.Collection, cfg Config, problems ...string) (*rows.Mongo, error) {
	cfg = cfg.withDefaults()
	list := append(cfg.problems(), problems...)
	if coll == nil {
		list = append(list, "the collection is nil")
	}
	if list != nil {
		return nil, &ConfigError{Problems: list}
	}
	return rows.NewMongo(coll, cfg.Field, cfg.Filter, cfg.Sort).Due(cfg.Due).Keeps(cfg.KeepDone > 0).
		Keyed(cfg.Key, cfg.KeyLetsGo), nil
}

// byID is kept for calls about rows by their _ids, and those as the server has them.
func byID(ctx context.Context, coll *mongo.Collection, cfg Config, state State, ids []any) (
	queue *rows.Mongo, raw []bson.RawValue, err error) {
	queue, err = kept(ctx, coll, cfg, state, StateDead, StateDone)
	for _, id := range ids {
		one, bad := rawID(id)
		raw, err = append(raw, one), cmp.Or(err, bad)
	}
	return queue, raw, err
}

// rawID is an _id as the server has it.
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

// MissingIndexes returns, for each index that a queue asks for and that is missing, the command
// that creates it, for the shell; see [New]. It changes nothing and needs no Manager; of cfg it
// uses Field, Due, Sort, Key and KeepDone. Two commands at most; no bound but ctx.
//
// Errors: a *ConfigError; a *distlock.PrivilegeError; those of the driver.
func MissingIndexes(ctx context.Context, coll *mongo.Collection, cfg Config) ([]string, error) {
	queue, err := opened(coll, cfg)
	if err != nil {
		return nil, err
	}
	return queue.Missing(ctx)
}

// CreateIndexes creates the indexes that MissingIndexes tells of. It needs no Manager. Two commands
// at most, and one for each index; no bound but ctx, and a collection of many rows takes its time.
//
// Errors: as MissingIndexes, with the command that creates what is still missing.
func CreateIndexes(ctx context.Context, coll *mongo.Collection, cfg Config) error {
	queue, err := opened(coll, cfg)
	if err != nil {
		return err
	}
	return queue.Prepare(ctx)
}
