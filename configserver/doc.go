// Package configserver has an embedded config server, and a check whether a server is fit for
// locks.
//
// [Start] runs a FerretDB v1.24 with its SQLite handler inside this process. It provides the
// MongoDB wire protocol and real BSON, in a given folder or a temporary one, without an
// installation. [Check] races contenders on scratch documents of any server and counts the winners.
//
// # Limits
//
// The server is for trials and tests, not for production. It is one process on one machine: no
// replica set, so no change streams, no transactions and no election. It listens only on loopback
// and has no passwords: every user of the machine can write to it. A filter with more fields than
// _id makes the cost of a command grow with the collection (measured: 1.3 ms at 1 document, 12 ms
// at 1,000, 110 ms at 10,000).
//
// FerretDB v1 does not support updates with a pipeline, $lookup, $expr, change streams and
// transactions. It gives two wrong results without an error. Only the first of several accumulators
// in one $group sees documents. FerretDB treats $$NOW as a string. Tests of this package detect
// when that changes.
//
// # The front
//
// FerretDB v1 reads, matches in Go and writes back without a transaction. Its conditional updates
// are therefore NOT atomic: 97 of 100 measured rounds of compare-and-set by 16 contenders had
// several winners. No client may lock through FerretDB directly. The server puts a front before
// FerretDB. The front reads the wire messages of all clients and passes one write at a time to each
// database:
//
//	client --tcp, loopback--+                +--- socket in a private folder ---+
//	client -----------------+--> front ------+    (one per client)              +--> FerretDB
//	client -----------------+      |         +----------------------------------+
//	                               one write at a time a database; reads pass in parallel
//
// FerretDB itself listens only on a Unix socket in a folder that other users may not enter, so that
// no client bypasses the front by accident. A command that is not a known read counts as a write. A
// write holds the gate of its database until FerretDB has replied, even if its client disconnects.
// A queued write is carried out even if its client disconnects. The gate also waits for
// unacknowledged writes. Clients can distinguish the front from a bare FerretDB: the reply of
// buildInfo contains mongodlmFront: true.
//
// A folder serves one server at a time, because a second front would not see the first front's
// writes. [Start] takes a lock in the folder, or returns [ErrDirInUse].
package configserver
