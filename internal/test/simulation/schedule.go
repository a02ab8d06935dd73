package simulation

import (
	"time"

	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// A Kind is a kind of fault.
type Kind string

// Faults of one command. For means the field Fault.For.
const (
	DelayRequest Kind = "delay request" // the request arrives For later
	DelayReply   Kind = "delay reply"   // applied without delay; the reply arrives For later
	Refuse       Kind = "refuse"        // not sent: no server is available
	Drop         Kind = "drop"          // not applied; the caller does not know that
	LoseReply    Kind = "lose reply"    // applied; the caller does not know that
	ApplyLate    Kind = "apply late"    // the caller gives up immediately; applied For later
	Duplicate    Kind = "duplicate"     // the command runs as usual, and a copy is applied For later
	StaleRead    Kind = "stale read"    // a read returns the state of the time For ago
	CrashBefore  Kind = "crash before"  // the process dies before the command is sent
	PauseBefore  Kind = "pause before"  // the process stops for For before the command is sent
)

// Faults that strike at a time, or just after a command was sent.
const (
	Crash       Kind = "crash"        // the process dies
	Restart     Kind = "restart"      // a new process starts in the place of a dead one
	Pause       Kind = "pause"        // the process stops for For; its clocks continue
	Suspend     Kind = "suspend"      // like Pause, but its monotonic clock stops, too
	Cut         Kind = "cut"          // all its commands during For are refused
	Deaf        Kind = "deaf"         // its commands during For are applied; the replies are lost
	Hang        Kind = "hang"         // its commands during For reach the store when For is over
	OldPrimary  Kind = "old primary"  // its reads during For return the state of this moment
	StepWall    Kind = "step wall"    // its wall clock steps by For
	StepServer  Kind = "step server"  // the server's clock steps by For
	Elect       Kind = "elect"        // another primary; its clock differs by For
	RemoveFree  Kind = "remove free"  // free lock documents are deleted
	Sever       Kind = "sever"        // its streams of notices break, For later
	EndContexts Kind = "end contexts" // the contexts of all calls of its users end
	Close       Kind = "close"        // the process closes; the context of Close ends For later
)

func (k Kind) onCall() bool {
	switch k {
	case DelayRequest, DelayReply, Refuse, Drop, LoseReply, ApplyLate, Duplicate, StaleRead,
		CrashBefore, PauseBefore:
		return true
	}
	return false
}

// ofProcess reports whether the fault strikes one process. Otherwise it strikes the whole world.
func (k Kind) ofProcess() bool {
	return k != StepServer && k != Elect && k != RemoveFree
}

// A Fault strikes once. If its kind needs a command, or if Call or Op is set, it strikes one of
// these commands of the process:
//   - the command with the number Call, if Call is set
//   - the first command of kind Op at or after At, if Op is set
//   - the first command at or after At
//
// Otherwise it strikes at the time At.
type Fault struct {
	Kind    Kind
	Process int // index in Schedule.Processes
	Call    int
	Op      fault.Op
	At      time.Duration
	For     time.Duration
}

// letter returns the name of a process by its index.
func letter(i int) string { return string(rune('A' + i)) }

// Timing contains the durations in the configurations of the Managers.
type Timing struct {
	Ping, Takeover, Margin time.Duration
	Poll, PollMax          time.Duration
	Limit                  time.Duration // limit of one command
	MaxGap                 time.Duration
	Foreign                time.Duration
	Mode                   takeover.Rule
}

// Small returns a timing in which a takeover takes a minute and few events.
func Small() Timing {
	return Timing{
		Ping: 5 * time.Second, Takeover: time.Minute, Margin: 15 * time.Second,
		Poll: 2 * time.Second, PollMax: 4 * time.Second, Limit: 5 * time.Second,
		MaxGap: 15 * time.Second, Foreign: time.Minute,
	}
}

// Mongos returns the timing of mongos.
func Mongos() Timing {
	return Timing{
		Ping: 30 * time.Second, Takeover: 15 * time.Minute, Margin: 225 * time.Second,
		Poll: 2 * time.Second, PollMax: 20 * time.Second, Limit: 5 * time.Second,
		MaxGap: 225 * time.Second, Foreign: 15 * time.Minute,
	}
}

// A Process is one process of a schedule.
type Process struct {
	// Rate is the rate of the clocks relative to true time. 0 means 1.
	Rate float64
	// Offset is the lead of the wall clock over true time.
	Offset time.Duration
	// Start is the time of the start of the process.
	Start time.Duration
	// Every makes the process a job, which closes when its users have returned. A new process
	// starts at each multiple of Every if the last one has closed.
	Every time.Duration
	// Users are the functions that use locks. Each runs in its own goroutine.
	Users []func(*User)
}

// A Schedule describes a run completely.
type Schedule struct {
	Name string
	// Seed determines the order of simultaneous events, the jitter, the latency and the users'
	// random numbers. With 0 there is neither jitter nor latency, and the process with the lowest
	// index acts first.
	Seed      uint64
	Timing    Timing
	Processes []Process
	Faults    []Fault
	// Length is the time at which all faults end.
	Length time.Duration
	// Quiet is the duration of the run after Length. Then all processes close.
	Quiet time.Duration
	// Streams lets waiters learn of their grants by streams. Otherwise they poll.
	Streams bool
	// Foreign lists the locks that a foreign manager uses. If it is empty, there is no such
	// manager.
	Foreign []string
	// World prepares the test of a package built on the lock. Run calls it at the start.
	World func(*Outside)
	// Turn and Pick change the order at one instant if Seed is 0. Turn counts the instants at which
	// several processes have events. At the instant Turn, Pick is the index of the process that
	// acts first, in the list of these processes.
	Turn, Pick int
	// Trace records the timeline.
	Trace bool
}
