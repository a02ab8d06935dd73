package distlock

import "sync/atomic"

// A command is a kind of what a process asks of its store.
type command int

const (
	toAcquire command = iota
	toRelease
	toConfirm
	toSeedFence
	toRenew
	toAsk
	toLook
	toOpenStream
	toGrant
	toCondemn
	toWitness
	toEvict
	toOvertake
	toPing
	toNote
	toRemovePing
	toReap
	toHello
	toPrune
	toPrepare
	toTransact
	toList
	toBreakLock
	toRequestYield
	toReorder
	toRecord
	toReadHistory
	kindsOfCommands
)

// commandKinds are their names in [Stats], and whether one writes.
var commandKinds = [kindsOfCommands]struct {
	name   string
	writes bool
}{
	toAcquire: {"acquire", true}, toRelease: {"release", true}, toConfirm: {"confirm", true},
	toSeedFence: {"seed_fence", true}, toRenew: {"renew", true},
	toAsk: {"ask", false}, toLook: {"look", false}, toOpenStream: {"stream", false}, toGrant: {"grant", true},
	toCondemn: {"condemn", true}, toWitness: {"witness", true}, toEvict: {"evict", true}, toOvertake: {"overtake", true},
	toPing: {"ping", true}, toNote: {"note", true}, toRemovePing: {"remove_ping", true}, toReap: {"reap", false},
	toHello: {"hello", false},
	toPrune: {"prune", true}, toPrepare: {"prepare", true}, toTransact: {"transact", true},
	toList: {"list", false}, toBreakLock: {"break", true}, toRequestYield: {"yield", true},
	toReorder: {"reorder", true}, toRecord: {"record", true}, toReadHistory: {"read_history", false},
}

// sentCommands counts what a process has sent, by kind.
type sentCommands [kindsOfCommands]atomic.Int64

func (c *sentCommands) add(kind command) { c[kind].Add(1) }

func (c *sentCommands) byKind() map[string]int64 {
	sent := make(map[string]int64, len(c))
	for kind := range c {
		sent[commandKinds[kind].name] = c[kind].Load()
	}
	return sent
}
