package distlock

import "time"

// Stats is what a Manager has counted since it was made, and what its server said of itself.
type Stats struct {
	Pings       int64         // acknowledged heartbeats
	Failures    int64         // heartbeats that were not acknowledged
	Processes   int64         // process ids that were given up for a new one
	Ghosts      int64         // ghosts that were found and freed
	Late        int64         // releases that the background has done
	Pruned      int64         // old ping documents deleted
	Panics      int64         // recovered in the heartbeat
	MaxLateness time.Duration // by which the heartbeat itself was late at worst
	Server      Server        // as of the last heartbeat
}

// Server is what the server said of itself, with what the configured database can do there.
type Server struct {
	Kind    string // "standalone", "replica set", "mongos", "ferretdb" or "memory"
	Version string // as the server reports it, "7.0.5"
	Primary string // names the term of the primary, or the start of a standalone server
	// Embedded is set when it is the embedded server, and ConfigServer for a mongod with --configsvr.
	Embedded, ConfigServer                       bool
	Transactions, ChangeStreams, PipelineUpdates bool
}

// Stats returns the counts of the heartbeat, and the server. No I/O.
func (m *Manager) Stats() Stats {
	beat, server := m.pinger.Stats(), m.pinger.Server()
	return Stats{
		Pings: beat.Pings, Failures: beat.Failures, Processes: beat.Sessions, Ghosts: beat.Ghosts,
		Late: beat.Late, Pruned: beat.Pruned, Panics: beat.Panics, MaxLateness: beat.MaxLateness,
		Server: Server{
			Kind: string(server.Kind), Version: server.Version, Primary: server.Primary,
			Embedded: server.Front, ConfigServer: server.ConfigServer, Transactions: server.Transactions,
			ChangeStreams: server.ChangeStreams, PipelineUpdates: server.PipelineUpdates,
		},
	}
}
