package simulation

import (
	"time"

	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// A Kind is a kind of fault.
type Kind string

// Faults of one command. For is a field of Fault.
const (
	DelayRequest Kind = "delay request" // the request arrives For later
	DelayReply   Kind = "delay reply"   // applied without delay; the reply arrives For later
	Refuse       Kind = "refuse"        // no server is reached: certainly not applied
	Drop         Kind = "drop"          // not applied, with an unknown outcome
	LoseReply    Kind = "lose reply"    // applied, with an unknown outcome
	ApplyLate    Kind = "apply late"    // the caller gives up immediately; applied For later
	Duplicate    Kind = "duplicate"     // the command runs as usual, and a copy is applied For later
	StaleRead    Kind = "stale read"    // a read returns the state of the time For ago
	CrashBefore  Kind = "crash before"  // the process dies before the command is sent
	PauseBefore  Kind = "pause before"  // the process stops for For before the command is sent
)

// Faults that happen at a time, or when a command has just been sent.
const (
	Crash       Kind = "crash"        // the process dies
	Restart     Kind = "restart"      // a new process starts in the place of a dead one
	Pause       Kind = "pause"        // the process stops for For; its clocks continue
	Suspend     Kind = "suspend"      // like Pause, but its monotonic clock stops, too
	Cut         Kind = "cut"          // all its commands during For are refused
	Deaf        Kind = "deaf"         // its commands during For are applied, their replies are lost
	Hang        Kind = "hang"         // its commands during For reach the store when For is over
	OldPrimary  Kind = "old primary"  // its reads during For return the state of this moment
	StepWall    Kind = "step wall"    // its wall clock steps by For
	StepServer  Kind = "step server"  // the server's clock steps by For
	Elect       Kind = "elect"        // another primary; its clock differs from the last one's by For
	RemoveFree  Kind = "remove free"  // free lock documents are deleted
	Sever       Kind = "sever"        // its streams of notices break, For later
	EndContexts Kind = "end contexts" // the contexts of all calls of its users end
	Close       Kind = "close"        // the process closes; its context ends For later (0: is done)
)

func (k Kind) onCall() bool {
	switch k {
	case DelayRequest, DelayReply, Refuse, Drop, LoseReply, ApplyLate, Duplicate, StaleRead,
		CrashBefore, PauseBefore:
		return true
	}
	return false
}

// ofProcess reports whether the fault strikes one process and not the whole world.
func (k Kind) ofProcess() bool {
	return k != StepServer && k != Elect && k != RemoveFree
}

// A Fault is one fault, which strikes once. It strikes one of these commands of the process:
//   - the command with the number Call
//   - without Call, the first command, or the first of kind Op, at or after At
//
// A kind of fault that needs no command strikes at At.
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

// Timing is the configuration of the Managers of a schedule.
type Timing struct {
	Ping, Takeover, Margin time.Duration
	Poll, PollMax          time.Duration
	Limit                  time.Duration // limit of one command
	MaxGap                 time.Duration
	Foreign                time.Duration
	Mode                   takeover.Rule
}

// Small is a timing of seconds. A takeover takes few events.
func Small() Timing {
	return Timing{
		Ping: 5 * time.Second, Takeover: time.Minute, Margin: 15 * time.Second,
		Poll: 2 * time.Second, PollMax: 4 * time.Second, Limit: 5 * time.Second,
		MaxGap: 15 * time.Second, Foreign: time.Minute,
	}
}

// Mongos is the timing of mongos.
func Mongos() Timing {
	return Timing{
		Ping: 30 * time.Second, Takeover: 15 * time.Minute, Margin: 225 * time.Second,
		Poll: 2 * time.Second, PollMax: 20 * time.Second, Limit: 5 * time.Second,
		MaxGap: 225 * time.Second, Foreign: 15 * time.Minute,
	}
}

// A Process is one process of a schedule.
type Process struct {
	// Rate is the rate of the clocks. 0 means 1.
	Rate float64
	// Offset is the lead of the wall clock over true time.
	Offset time.Duration
	// Start is the time at which the process starts.
	Start time.Duration
	// Every makes the process a job. A new process starts in this interval unless the last one still
	// runs. A process closes when its users have returned.
	Every time.Duration
	// Users are the functions of its users. Each runs in a goroutine.
	Users []func(*User)
}

// A Schedule describes one run completely.
type Schedule struct {
	Name string
	// Seed orders the events of one instant and feeds jitter, latency and the users' random
	// numbers. With 0 nothing is random: no jitter, no latency, A before B.
	Seed      uint64
	Timing    Timing
	Processes []Process
	Faults    []Fault
	// Length is the time during which faults may strike. Afterwards all faults end.
	Length time.Duration
	// Quiet is the time without faults before all processes close.
	Quiet time.Duration
	// Streams turns on streams of notices. Without streams waiters poll.
	Streams bool
	// Foreign are the locks that MongoDB's own lock manager uses, if it runs with the processes.
	Foreign []string
	// World starts the checks and the store of a package built on the lock.
	World func(*Outside)
	// Without a seed Pick selects the process that is first at the instant with number Turn, of the
	// instants at which several processes have an event. At the others the lowest index is first.
	Turn, Pick int
	// Trace keeps the timeline.
	Trace bool
}
