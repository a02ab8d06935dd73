package simulation

import (
	"time"

	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// A Kind is a kind of fault.
type Kind string

// These faults strike one command. D is the duration in the field Fault.For.
const (
	DelayRequest Kind = "delay request" // the request is delayed by D
	DelayReply   Kind = "delay reply"   // applied without delay; the reply is delayed by D
	Refuse       Kind = "refuse"        // the command is not sent: no server is available
	Drop         Kind = "drop"          // the command is not applied; the caller does not know that
	LoseReply    Kind = "lose reply"    // the command is applied; the caller does not know that
	ApplyLate    Kind = "apply late"    // the caller gives up; the command is applied D later
	Duplicate    Kind = "duplicate"     // the command runs as usual, and a copy is applied D later
	StaleRead    Kind = "stale read"    // a read returns an old state, from D ago
	CrashBefore  Kind = "crash before"  // the process dies before the command is sent
	PauseBefore  Kind = "pause before"  // the process stops for D before the command is sent
)

// These faults strike at a time, or just after a command was sent. D is the duration in the field
// Fault.For. The process is the one in Fault.Process.
const (
	Crash       Kind = "crash"        // the process dies
	Restart     Kind = "restart"      // a new process starts in the place of a dead one
	Pause       Kind = "pause"        // the process stops for D; its clocks continue
	Suspend     Kind = "suspend"      // like Pause, but the monotonic clock of the process stops, too
	Cut         Kind = "cut"          // during D, the commands of the process are refused
	Deaf        Kind = "deaf"         // during D, its commands are applied, but the replies are lost
	Hang        Kind = "hang"         // during D, its commands wait; then they reach the store
	OldPrimary  Kind = "old primary"  // during D, its reads return the state at the start of D
	StepWall    Kind = "step wall"    // the wall clock of the process steps by D
	StepServer  Kind = "step server"  // the server's clock steps by D
	Elect       Kind = "elect"        // another server becomes primary; its clock differs by D
	RemoveFree  Kind = "remove free"  // free lock documents are deleted
	Sever       Kind = "sever"        // the streams of the process break after D
	EndContexts Kind = "end contexts" // the contexts of all open calls of the process end
	Close       Kind = "close"        // the process closes; the context of Close ends after D
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

// A Fault strikes once, either at the time At or at a command of its process. It strikes a command
// if its kind needs one, or if Call or Op is set. That command is:
//   - the command with the number Call, if Call is set
//   - the first command of kind Op at or after At, if Op is set
//   - the first command at or after At, if neither is set
type Fault struct {
	Kind    Kind
	Process int // index in Schedule.Processes
	Call    int
	Op      fault.Op
	At      time.Duration
	For     time.Duration
}

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

// Small returns short durations. A takeover takes a minute and few events.
func Small() Timing {
	return Timing{
		Ping: 5 * time.Second, Takeover: time.Minute, Margin: 15 * time.Second,
		Poll: 2 * time.Second, PollMax: 4 * time.Second, Limit: 5 * time.Second,
		MaxGap: 15 * time.Second, Foreign: time.Minute,
	}
}

// Mongos returns the durations of mongos.
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
	// Start is the time at which the process starts.
	Start time.Duration
	// Every makes the process a job if it is not 0. A job closes when its users have returned. A new
	// process starts at Start plus each multiple of Every, if the previous process has ended.
	Every time.Duration
	// Users are the functions that use locks. Each runs in its own goroutine.
	Users []func(*User)
}

// A Schedule describes a run completely.
type Schedule struct {
	Name string
	// Seed determines the order of simultaneous events, the jitter, the latency and the users' random
	// numbers. With 0 there is neither jitter nor latency, and the process with the lowest index acts
	// first.
	Seed      uint64
	Timing    Timing
	Processes []Process
	Faults    []Fault
	// Length is the time at which all faults end.
	Length time.Duration
	// Quiet is the duration of the run after Length. Then all processes close.
	Quiet time.Duration
	// Streams lets waiters learn of their grants by streams of notices. If it is false, they poll.
	Streams bool
	// Foreign lists the locks that a foreign manager uses. If the list is empty, no foreign manager
	// runs.
	Foreign []string
	// World prepares the test of a package built on the lock. If World is not nil, Run calls it at the
	// start.
	World func(*Outside)
	// Trace makes Run record the timeline.
	Trace bool
}
