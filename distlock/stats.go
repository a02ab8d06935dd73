package distlock

import "time"

// Stats is what a Manager has counted since it was made, how it stands now, and what its server said of
// itself. What was acquired, refused and lost is told to an [Observer].
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

	Held    int // acquisitions that were not released, lost ones too
	Waiting int // calls of Lock and Do that have yet to get their locks
	// OldestWait is for how long the one has waited that has waited for the longest. It begins anew where a
	// process that lost its heartbeat enters the line again.
	OldestWait time.Duration
	// Unreleased is how many sessions the background is yet to take out of their locks: the late releases, and
	// callers that gave up a moment ago.
	Unreleased int
	// PingAge is how long ago the last acknowledged ping was sent, TrustedFor how long the guards will be
	// trusted without another; zero when they are lost. Lateness is by how much the heartbeat was late at its
	// last ping.
	PingAge, TrustedFor, Lateness time.Duration
	// Skew is by how much the server's clock was ahead of this machine's at the last acknowledged ping, give
	// or take half of its round trip. No lock depends on it but by the shorter takeover rule, see
	// [Config].MaxClockSkew.
	Skew time.Duration
	// Listening says how grants come to those who wait: "stream", a change stream that tells in time, "polling",
	// by asking, beside a stream that lags as well, or "" when nobody waits nor did a ping interval ago.
	Listening string
	// Commands counts what was sent to the store, by its kind: "acquire", "release", "ping", "look" and so
	// on, all that there are. Most are one command of the server.
	Commands map[string]int64
	// History counts what was written to the history, the events that never will be, and the batches that failed
	// and are tried again; see [HistoryConfig].
	History HistoryStats
}

// HistoryStats counts entries, events and batches.
type HistoryStats struct{ Written, Missed, Failures int64 }

// Server is what the server said of itself, with what the configured database can do there.
type Server struct {
	Kind    string // "standalone", "replica set", "mongos", "ferretdb" or "memory"
	Version string // as the server reports it, "7.0.5"
	Primary string // names the term of the primary, or the start of a standalone server
	// Embedded is set when it is the embedded server, and ConfigServer for a mongod with --configsvr.
	Embedded, ConfigServer                       bool
	Transactions, ChangeStreams, PipelineUpdates bool
}

// Stats returns the counts, what the process has and waits for now, and the server. No I/O; it waits for
// nobody, and may be asked as often as one likes.
func (m *Manager) Stats() Stats {
	beat, server := m.pinger.Stats(), m.pinger.Server()
	s := Stats{
		Pings: beat.Pings, Failures: beat.Failures, Processes: beat.Sessions, Ghosts: beat.Ghosts,
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
	if m.history != nil {
		s.History = HistoryStats(m.history.Counts())
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
