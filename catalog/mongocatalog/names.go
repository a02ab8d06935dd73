package mongocatalog

import (
	"sync"

	"mongodlm/catalog"
)

// A use says how a lock was used when this process last saw it, and so which form of a departure is
// tried first. A wrong guess costs a command that matches nothing.
type use struct {
	mode catalog.Mode
	line bool // somebody waited
}

// A usedNames remembers the names of the locks that were not held by one for whom nobody waited.
type usedNames struct {
	mu    sync.Mutex // guards names
	names map[string]use
}

// namesAtMost bounds what is remembered.
const namesAtMost = 10_000

func (n *usedNames) note(name string, u use) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case u == use{}:
		delete(n.names, name)
		return
	case n.names == nil || len(n.names) >= namesAtMost:
		n.names = map[string]use{}
	}
	n.names[name] = u
}

func (n *usedNames) of(name string) use {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}
