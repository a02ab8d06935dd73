package distlock

import "time"

// Stats is what a Manager has counted, how it stands now, and its server.
type Stats struct {
	Pings       int64         // acknowledged pings
	Failures    int64         // pings that were not acknowledged
	Processes   int64         // process ids that were given up for a new one
	Ghosts      int64         // ghosts that were freed
	Late        int64         // releases that the background has done
	Pruned      int64         // old ping documents that were deleted
	Panics      int64         // recovered in the heartbeat
	MaxLateness time.Duration // by which the heartbeat was late at worst
	Server      Server        // as of the last ping

	Held       int              // acquisitions that were not released, lost ones too
	Waiting    int              // calls of Lock and Do that have yet to get their locks
	OldestWait time.Duration    // in line; not of who stands by: candidates, followers of loops, rescuers
	Unreleased int              // sessions that the background is yet to take out of their locks
	PingAge    time.Duration    // since the last acknowledged ping was sent
	TrustedFor time.Duration    // how long guards stay trusted without another ping; 0 when lost
	Lateness   time.Duration    // of the heartbeat at its last ping
	Skew       time.Duration    // by which the server's clock was ahead at the last acknowledged ping
	Listening  string           // how waiters hear of grants: "stream", "polling", "" where none waits
	Commands   map[string]int64 // sent to the store, by kind: "acquire", "release", "ping" and so on
}

// Server is what the server said of itself, and can do.
type Server struct {
	Kind            string // "standalone", "replica set", "mongos", "ferretdb" or "memory"
	Version         string // as the server reports it, "7.0.5"
	Primary         string // the term of the primary, or the start of a standalone server
	Embedded        bool   // it is the embedded server
	ConfigServer    bool   // a mongod with --configsvr
	Transactions    bool
	ChangeStreams   bool
	PipelineUpdates bool
}

// Stats returns the counts and the present state. No I/O; it never waits.
func (m *Manager) Stats() Stats {
	beat, server := m.pinger.Stats(), m.pinger.Server()
	s := Stats{
		Pings: beat.Pings, Failures: beat.Failures, Processes: beat.ProcessIDs, Ghosts: beat.Ghosts,
		Late: beat.Late, Pruned: beat.Pruned, Panics: beat.Panics, MaxLateness: beat.MaxLateness,
		Server: Server{
			Kind: string(server.Kind), Version: server.Version, Primary: server.Primary,
			Embedded: server.Front, ConfigServer: server.ConfigServer, Transactions: server.Transactions,
			ChangeStreams: server.ChangeStreams, PipelineUpdates: server.PipelineUpdates,
		},
		Held: m.owned.count(), Waiting: int(m.waits.Load()), OldestWait: m.queue.Oldest(),
		Unreleased: beat.Left,
		Lateness:   beat.Lateness, Skew: beat.Skew, Listening: m.listening(), Commands: m.sent.byKind(),
	}
	if term := m.pinger.Last(); term != nil {
		s.PingAge, s.TrustedFor = term.Age(), term.Left()
	}
	return s
}

func (m *Manager) listening() string {
	switch attends, streaming := m.queue.Listens(); {
	case !attends:
		return ""
	case streaming:
		return "stream"
	}
	return "polling"
}
