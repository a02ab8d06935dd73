package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// keyProblems says what is wrong with Config.Key.
func (c Config) keyProblems() (list []string) {
	if c.Key == "" {
		if c.KeyLetsGo {
			list = append(list, "KeyLetsGo needs Key")
		}
		return list
	}
	list = c.pathProblems("Key", c.Key)
	if c.Key == "_id" {
		list = append(list, "Key is _id: no two rows have the same one")
	}
	return list
}

// oneKey refuses documents that are never given, because they would be in several chains.
func (e *engine) oneKey(docs ...any) error {
	if e.cfg.Key == "" {
		return nil
	}
	for i, doc := range docs {
		raw, err := bson.Marshal(doc)
		if err != nil { // the driver says so, or can do it
			continue
		}
		if field := rows.ListIn(raw, e.cfg.Key); field != "" {
			return fmt.Errorf("document %d of %d has a list in the field %q, and Config.Key is %q: "+
				"a row is in one chain, give it one value there", i+1, len(docs), field, e.cfg.Key)
		}
	}
	return nil
}

// badKey marks what a server cannot do for chains as a contradiction of the configuration.
func badKey(err error) error {
	var key *rows.KeyError
	if errors.As(err, &key) {
		return &ConfigError{Problems: []string{key.Error()}}
	}
	return fmt.Errorf("claim: %w", err)
}

// crowd is how many rows are read for each that is wanted, since several of them may have one key.
const crowd = 4

// inChains leaves the rows out whose keys are held, by the server and by what is worked on here.
// One command, and another when a row was claimed in vain whose key none that is at work holds.
func (e *engine) inChains(ctx context.Context, ask *rows.Ask, asked *question) error {
	limited, done := e.command(ctx)
	defer done()
	held, err := e.held(limited, asked)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	known := keySet(held)
	e.mu.Lock()
	behind := e.behind
	e.behind = nil
	for c := range e.flying {
		if key, ok := rows.KeyOf(c.row.Doc, e.cfg.Key); ok && !known[rows.KeyText(key)] {
			known[rows.KeyText(key)] = true
			held = append(held, key)
		}
	}
	e.mu.Unlock()
	ask.Held = held
	ask.Behind = slices.DeleteFunc(behind, func(key bson.RawValue) bool {
		return known[rows.KeyText(key)]
	})
	if len(ask.Behind) == 0 {
		return nil
	}
	n, err := e.store.Settle(limited, ask.Behind)
	if err != nil || n > 0 {
		e.log.Warn().Err(err).Int("rows", n).
			Msg("keys were held by rows that are done, dead or no rows of the queue")
	}
	return nil
}

func keySet(keys []bson.RawValue) map[string]bool {
	set := map[string]bool{}
	for _, key := range keys {
		set[rows.KeyText(key)] = true
	}
	return set
}

// isBehind reports whether a row was claimed in vain since another holds its key, and notes that.
func (e *engine) isBehind(err error) bool {
	var held *rows.HeldError
	if !errors.As(err, &held) {
		return false
	}
	if !held.Key.IsZero() {
		e.mu.Lock()
		e.behind = append(e.behind, held.Key)
		e.mu.Unlock()
	}
	return true
}

// lostTo notes the keys of rows that were claimed in vain.
func (e *engine) lostTo(found, got []rows.Row) {
	if e.cfg.Key == "" || len(got) == len(found) {
		return
	}
	mine := map[string]bool{}
	for _, row := range got {
		mine[rows.Key(row.ID)] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, row := range found {
		if key, ok := rows.KeyOf(row.Doc, e.cfg.Key); ok && !mine[rows.Key(row.ID)] {
			e.behind = append(e.behind, key)
		}
	}
}

// firsts are n of these rows, each the first one of its key, from somewhere among the first ones.
func (e *engine) firsts(found []rows.Row, n, spread int) (first []rows.Row) {
	seen := map[string]bool{}
	for _, row := range found {
		key, ok := rows.KeyOf(row.Doc, e.cfg.Key)
		if !ok || !seen[rows.KeyText(key)] {
			first = append(first, row)
		}
		if ok {
			seen[rows.KeyText(key)] = true
		}
	}
	from := upTo(e.clock, min(spread*n, max(len(first)-n, 0)))
	return first[from:min(from+n, len(first))]
}

// isWaited reports whether the end of a row may free another of its key, of which no stream tells.
func (a *arrivals) isWaited() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.blocked && !a.open
}
