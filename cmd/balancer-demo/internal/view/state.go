package view

import "time"

// A State is one picture of the running demo.
type State struct {
	Height   int    // of the terminal in lines, 24 to 40; less is drawn as 24, more as 40
	Title    string // what runs, for the header
	Server   string // where the config server listens
	Elapsed  time.Duration
	Finished bool // the cluster is balanced
	Lock     Lock
	Line     []Waiter // who waits for the lock, the next one first
	// Balancers are drawn in this order.
	Balancers []Balancer
	Takeovers []Takeover // oldest first
	Shards    []Load
	// Collections are the namespaces that get a column, in this order.
	Collections []string
	Events      []Event // oldest first
}

// A Lock is the lock of the balancers as it stands in the database.
type Lock struct {
	Name    string
	Held    bool
	Process string // the last holder's when it is free
	Number  int    // of the balancer; 0 when the process is none of ours
	Fence   int64
	Why     string
	Since   time.Duration // how long it has been held
	// Dead is true when the holder is a process that has ended, although another runs under its
	// number again.
	Dead bool
	// Silent is how old the holder's ping is, negative when unknown; after Takeover of silence the
	// lock may be taken over.
	Silent, Takeover time.Duration
}

// A Waiter is who stands in line for the lock.
type Waiter struct {
	Number  int // of the balancer; 0 when the process is none of ours
	Process string
	Waited  time.Duration // negative when unknown
}

// A Condition is what the demo knows of a balancer's process.
type Condition string

// The conditions of a process.
const (
	Running Condition = "running"
	Stopped Condition = "stopped (SIGSTOP)"
	Killed  Condition = "killed"
)

// A Balancer is one process of the demo.
type Balancer struct {
	Number    int // from 1
	PID       int
	Condition Condition
	Rounds    int
	Moves     int
	PingAge   time.Duration // negative when it has not pinged
	Holder    bool
	Place     int   // in the line for the lock, from 1; 0 when it does not wait
	Fence     int64 // of its last round; 0 when it had none
}

// A Takeover is a lock that changed hands by force.
type Takeover struct {
	At       time.Duration `json:"atNanos"` // since the begin of the demo
	From     string        `json:"from"`    // process id
	To       string        `json:"to"`      // process id
	Fence    int64         `json:"fence"`
	Waited   time.Duration `json:"waitedNanos"` // how long To had waited
	Evidence string        `json:"evidence"`
}

// An Event is something that happened: one line in the log.
type Event struct {
	At       time.Duration // since the begin of the demo
	Balancer int           // its number; 0 for the demo itself
	Kind     string        // a short word: round, move, takeover, kill, stop, resume, violation
	Text     string        // what happened, in words
	Fields   []Field
}

// A Field is a fact of an event.
type Field struct {
	Key, Value string
}
