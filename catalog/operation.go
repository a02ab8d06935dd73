package catalog

import (
	"maps"
	"slices"
)

// An Op is the name of a store's operation in errors, metrics and tests.
type Op string

// The operations of a [Catalog].
const (
	OpAcquire      Op = "acquire" // Enter with TryPlain
	OpEnter        Op = "enter"
	OpLeave        Op = "release"
	OpEvict        Op = "evict"
	OpGrantNext    Op = "grant"
	OpConfirm      Op = "confirm"
	OpSeedFence    Op = "seed_fence"
	OpRenew        Op = "renew"
	OpPutFirst     Op = "reorder"
	OpRequestYield Op = "yield"
	OpBreak        Op = "break"

	OpPing       Op = "ping"
	OpCondemn    Op = "condemn"
	OpWitness    Op = "witness"
	OpRemovePing Op = "remove_ping"
	OpHeld       Op = "reap"
	OpOldPings   Op = "old_pings"
	OpPrune      Op = "prune"
	OpPruneLocks Op = "prune_locks"
	OpPrepare    Op = "prepare"
	OpHello      Op = "hello"

	OpRead             Op = "read"
	OpSnapshots        Op = "look"
	OpHeldOrFree       Op = "ask"
	OpList             Op = "list"
	OpListWaited       Op = "list_waiters"
	OpGrantStream      Op = "stream"
	OpNextGrants       Op = "next_grants" // Next of a [GrantStream]
	OpTransact         Op = "transact"
	OpEnterTransaction Op = "enter_transaction"
)

var writes = map[Op]bool{
	OpAcquire: true, OpEnter: true, OpLeave: true, OpEvict: true, OpGrantNext: true,
	OpConfirm: true, OpSeedFence: true, OpRenew: true, OpPutFirst: true, OpRequestYield: true,
	OpBreak: true,

	OpPing: true, OpCondemn: true, OpWitness: true, OpRemovePing: true, OpHeld: false,
	OpOldPings: false, OpPrune: true, OpPruneLocks: true, OpPrepare: true, OpHello: false,

	OpRead: false, OpSnapshots: false, OpHeldOrFree: false, OpList: false, OpListWaited: false,
	OpGrantStream: false, OpNextGrants: false, OpTransact: true, OpEnterTransaction: true,
}

// Ops returns all operations, in any order.
func Ops() []Op { return slices.Collect(maps.Keys(writes)) }

// Writes reports whether the operation changes documents. If a call of this operation gets no
// reply, its outcome is unknown.
func (op Op) Writes() bool { return writes[op] }
