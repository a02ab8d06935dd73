package configserver

import "sync/atomic"

// Stats are the counts of a server since its start.
type Stats struct {
	Clients       int   // connected now
	Refused       int64 // clients refused because of too many connections
	Reads, Writes int64 // commands received; the writes of a database are serialized
}

type counts struct{ refused, reads, writes atomic.Int64 }

func (c *counts) add(r request) {
	if r.write {
		c.writes.Add(1)
	} else {
		c.reads.Add(1)
	}
}

// Stats returns the counts. It does not wait for commands.
func (s *Server) Stats() Stats {
	f := s.front
	f.mu.Lock()
	clients := len(f.clients)
	f.mu.Unlock()
	return Stats{
		Clients: clients, Refused: f.counts.refused.Load(), Reads: f.counts.reads.Load(),
		Writes: f.counts.writes.Load(),
	}
}
