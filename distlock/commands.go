package distlock

import (
	"sync/atomic"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

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
	toReorder: {"reorder", true},
}

// kindsOfOps are the kinds of the operations that are no transition.
var kindsOfOps = map[catalog.Op]command{
	catalog.OpRead: toLook, catalog.OpSnapshots: toLook, catalog.OpHeldOrFree: toAsk,
	catalog.OpList: toList, catalog.OpListWaited: toList, catalog.OpWaitedUnder: toList,
	catalog.OpGrantStream: toOpenStream, catalog.OpEnterTransaction: toAcquire, catalog.OpTransact: toTransact,
	catalog.OpPing: toPing, catalog.OpCondemn: toCondemn, catalog.OpWitness: toWitness, catalog.OpPutNote: toNote,
	catalog.OpRemovePing: toRemovePing, catalog.OpHeld: toReap, catalog.OpHeldSummary: toReap, catalog.OpHello: toHello,
	catalog.OpPrune: toPrune, catalog.OpPruneLocks: toPrune, catalog.OpPrepare: toPrepare,
}

// kindOf returns of what kind a call is; ok is false when it is no command.
func kindOf(c catalog.Call) (kind command, ok bool) {
	switch c.Transition.(type) {
	case transition.Enter:
		return toAcquire, true
	case transition.Leave:
		return toRelease, true
	case transition.Confirm:
		return toConfirm, true
	case transition.SeedFence:
		return toSeedFence, true
	case transition.Renew:
		return toRenew, true
	case transition.GrantNext:
		return toGrant, true
	case transition.Evict:
		return toEvict, true
	case transition.Overtake:
		return toOvertake, true
	case transition.Break:
		return toBreakLock, true
	case transition.RequestYield:
		return toRequestYield, true
	case transition.PutFirst:
		return toReorder, true
	}
	kind, ok = kindsOfOps[c.Op]
	return kind, ok
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
