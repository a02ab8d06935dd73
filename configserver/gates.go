package configserver

import (
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Gates pass one write at a time to each database. A slow write does not delay the writes to other
// databases, which cannot change the same document.
type gates struct {
	mu   sync.Mutex // guards open
	open map[string]*gate
}

// A gate serializes the writes of one database. It exists only while writes wait or run, so an
// unused database needs no memory.
type gate struct {
	token chan struct{} // has one element while the backend carries out a write
	users int           // guarded by gates.mu
}

// enter waits until a write may pass. Writes pass in the order of arrival. The caller ends its
// write by calling the returned function. If the channel done is closed first, enter returns nil.
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

// databaseOf returns the database that a command may write to. The name is in lower case, because
// some file systems ignore case. The command renameCollection is sent to admin, but its value names
// the database.
func databaseOf(command string, document bson.Raw) string {
	name, _ := document.Lookup("$db").StringValueOK()
	if command == "renameCollection" {
		from, _ := document.Lookup(command).StringValueOK()
		name, _, _ = strings.Cut(from, ".")
	}
	return strings.ToLower(name)
}
