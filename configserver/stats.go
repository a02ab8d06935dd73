package configserver

import "sync/atomic"

// Stats is what a server has counted since it was started.
type Stats struct {
	Clients       int   // connected now
	Refused       int64 // clients that were turned away, since too many were connected
	Reads, Writes int64 // commands that were passed on; writes wait for one another in each database
}

// counts are kept by the front.
type counts struct{ refused, reads, writes atomic.Int64 }

func (c *counts) add(r request) {
	if r.write {
		c.writes.Add(1)
	} else {
		c.reads.Add(1)
	}
}

// Stats returns the counts. It waits for no command.
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
