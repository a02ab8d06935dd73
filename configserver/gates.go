package configserver

import (
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Gates let one write at a time through to each database. Writes in different databases touch no
// document in common, so a slow one holds up nobody elsewhere.
type gates struct {
	mu   sync.Mutex // guards open
	open map[string]*gate
}

// A gate is that of one database. It lives while somebody uses it, so names that nobody uses any
// more cost nothing.
type gate struct {
	token chan struct{} // holds one while a write is with the backend
	users int           // guarded by gates.mu
}

// enter waits for the turn of a write, in the order in which they came, and returns what ends it,
// or nil when done is closed before.
func (s *gates) enter(database string, done <-chan struct{}) (leave func()) {
	s.mu.Lock()
	g := s.open[database]
	if g == nil {
		g = &gate{token: make(chan struct{}, 1)}
		s.open[database] = g
	}
	g.users++
	s.mu.Unlock()
	select {
	case g.token <- struct{}{}:
		return func() { <-g.token; s.drop(database, g) }
	case <-done:
		s.drop(database, g)
		return nil
	}
}

func (s *gates) drop(database string, g *gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.users--; g.users == 0 {
		delete(s.open, database)
	}
}

// databaseOf returns the database whose documents a command may write. A renameCollection names it
// in its own value, since it is sent to admin. Names are folded, as some file systems do.
func databaseOf(command string, document bson.Raw) string {
	name, _ := document.Lookup("$db").StringValueOK()
	if command == "renameCollection" {
		from, _ := document.Lookup(command).StringValueOK()
		name, _, _ = strings.Cut(from, ".")
	}
	return strings.ToLower(name)
}
