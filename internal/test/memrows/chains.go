package memrows

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// A ring is what the store in memory knows of chains: what a unique index is to a server.
type ring struct {
	key     string
	lets    bool               // a row that is retrying does not hold its key
	holders map[string]*record // by key
	most    int                // of what Held tells; zero: all
}

// Keyed makes rows that have the same value in this field chains, see [rows.Mongo.Keyed]. Call it
// before anything else.
func (m *Memory) Keyed(key string, letGo bool) *Memory {
	if key != "" {
		m.chains = ring{key: key, lets: letGo, holders: map[string]*record{}}
	}
	return m
}

// readKey reads the key of a row; empty without one.
func (c *ring) readKey(r *record) {
	if key, ok := rows.KeyOf(r.Doc, c.key); ok {
		r.key = rows.KeyText(key)
	}
	r.keys = c.key != "" && rows.ListIn(r.Doc, c.key) != ""
}

// refuses reports whether another row holds the key of this one, as a unique index does. Else it
// holds its key from now on.
func (c *ring) refuses(r *record) bool {
	if holder := c.holders[r.key]; r.key != "" && holder != nil && holder != r {
		return true
	}
	c.take(r)
	return false
}

// take makes a row hold its key.
func (c *ring) take(r *record) {
	r.Mark.Holds = c.key
	if r.key != "" {
		c.holders[r.key] = r
	}
}

// letGo makes a row hold its key no more. It reports whether it did.
func (c *ring) letGo(r *record) bool {
	r.Mark.Holds = ""
	held := r.key != "" && c.holders[r.key] == r
	if held {
		delete(c.holders, r.key)
	}
	return held
}

// wants returns which rows may be claimed as far as their keys go.
func (c *ring) wants(ask *rows.Ask) func(*record) bool {
	held, behind := map[string]bool{}, map[string]bool{}
	if ask != nil {
		for _, key := range ask.Held {
			held[rows.KeyText(key)] = true
		}
		for _, key := range ask.Behind {
			behind[rows.KeyText(key)] = true
		}
	}
	return func(r *record) bool {
		return !r.keys && !held[r.key] && (!behind[r.key] || c.holders[r.key] == r)
	}
}

// Held is documented in [rows.Store].
func (m *Memory) Held(_ context.Context, of []bson.RawValue) (
	keys []bson.RawValue, all bool, err error,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := slices.Sorted(maps.Keys(m.chains.holders))
	if of != nil {
		wanted = nil
		for _, key := range of {
			wanted = append(wanted, rows.KeyText(key))
		}
	}
	for _, key := range wanted {
		r := m.chains.holders[key]
		if r == nil || r.Mark.State != rows.Claimed && r.Mark.State != rows.Retrying {
			continue
		}
		if of == nil && m.chains.most > 0 && len(keys) == m.chains.most {
			return keys, false, nil
		}
		held, _ := rows.KeyOf(r.Doc, m.chains.key)
		keys = append(keys, held)
	}
	return keys, true, nil
}

// HeldAtMost makes Held tell so many keys at most, unless it is asked of some.
func (m *Memory) HeldAtMost(n int) { m.chains.most = n }

// Settle is documented in [rows.Store].
func (m *Memory) Settle(_ context.Context, keys []bson.RawValue) (n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		r := m.chains.holders[rows.KeyText(key)]
		if r == nil {
			continue
		}
		switch r.Mark.State {
		case rows.Ready, rows.Claimed, rows.Retrying:
			continue
		}
		if m.chains.letGo(r) {
			n++
		}
	}
	return n, nil
}
