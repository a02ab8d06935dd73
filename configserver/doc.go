// Package configserver is the config server for people who have none, and the check of whether
// any server is fit to keep locks.
//
// [Start] runs a FerretDB v1.24 with its SQLite handler inside this process: the MongoDB wire
// protocol, real BSON, a folder or a temporary one, nothing to install. [Check] races contenders
// on scratch documents of any server and counts how many of them win.
//
// # What it does not promise
//
// It is for trying and for tests, not for production. It is one process on one machine: no
// replica set, so no change streams, no transactions and no election. It listens on loopback only
// and knows no passwords: every user of the machine can write to it. The cost of a command grows
// with the collection when its filter names more than _id (measured: 1.3 ms at 1 document, 12 ms
// at 1,000, 110 ms at 10,000).
//
// Some things FerretDB v1 refuses (updates with a pipeline, $lookup, $expr, change streams,
// transactions), and two it gets wrong without an error: of several accumulators in one $group all
// but the first see no documents, and $$NOW is taken for a text. Tests of this package notice when
// that changes.
//
// # The front
//
// FerretDB v1 reads, matches in Go and writes back without a transaction. Its conditional updates
// are therefore NOT atomic: measured, 97 of 100 rounds of compare-and-set by 16 contenders had
// several winners. Nothing may lock through it directly. The server puts a front before it, which
// reads the wire messages of all clients and lets one write at a time through to each database:
//
//	client --tcp, loopback--+                +--- socket in a private folder ---+
//	client -----------------+--> front ------+    (one per client)              +--> FerretDB
//	client -----------------+      |         +----------------------------------+
//	                               one write at a time a database; reads pass in parallel
//
// FerretDB itself listens only on a Unix socket in a folder that nobody else may enter, so that no
// client goes round the front by accident. What is not known to be a read counts as a write. A
// write holds the gate of its database until FerretDB has answered, whatever became of its client
// meanwhile; one that waits for its turn when its client goes away is still carried out.
// Unacknowledged writes are waited for as well. Clients can tell the front from a bare FerretDB:
// its buildInfo carries mongodlmFront: true.
//
// A folder serves one server at a time: a second front could not know of the first one's writes,
// so [Start] takes a lock in the folder and refuses it otherwise ([ErrDirInUse]).
package configserver
