// Package configserver runs an embedded config server, and checks whether a server can keep locks.
//
// [Start] runs a FerretDB v1.24 with its SQLite handler inside this process. The server speaks the
// MongoDB wire protocol, and needs no installation. It stores its documents in a given folder or a
// temporary one. [Check] lets contenders race on scratch documents of any server and counts the
// winners.
//
// # Limits
//
// The server is for trials and tests, not for production. It is one process on one machine. Without
// a replica set it has no change streams, no transactions and no election. It listens only on
// loopback and has no passwords: every user of the machine can write to it. If a filter contains a
// field other than _id, the time of a command grows with the collection. Measured: 1.3 ms at 1
// document, 12 ms at 1,000, 110 ms at 10,000.
//
// FerretDB v1 does not support updates with a pipeline, $lookup, $expr, change streams and
// transactions. It returns two wrong results without an error. If a $group has several
// accumulators, only the first one gets the documents. $$NOW is a string instead of a date.
//
// A client can end the process: after a delete with the filter {v: {$mod: 5}}, whose argument is
// wrong, FerretDB panics in the next garbage collection. FerretDB also keeps each unknown command
// name until Close, even a name of many megabytes.
//
// # Building
//
// A program that imports this package takes about 300 s of processor time to compile for the first
// time: the standard library 76 s, SQLite 40 s, FerretDB 16 s, and its other dependencies. The
// build tag ferretdb_no_postgresql omits the PostgreSQL backend of FerretDB, which this package
// does not use. It saves 18 s and 6 MB of the program. FerretDB has no tag for its MySQL backend
// and its traces.
//
// # The front
//
// FerretDB v1 executes a conditional update in three steps without a transaction: it reads, matches
// in Go and writes back. Its conditional updates are therefore NOT atomic: 97 of 100 measured
// rounds of compare-and-set by 16 contenders had several winners. No client may lock through
// FerretDB directly. So the server puts a front between the clients and FerretDB. The front reads
// the wire messages of all clients. Each database has a gate, which passes one write at a time:
//
//	client --tcp, loopback--+                +--- socket in a private folder ---+
//	client -----------------+--> front ------+    (one per client)              +--> FerretDB
//	client -----------------+      |         +----------------------------------+
//	                               one write at a time per database; reads pass in parallel
//
// FerretDB itself listens only on a Unix socket in a folder that other users may not enter, so that
// no client bypasses the front by accident. A command that is not a known read counts as a write. A
// write holds the gate of its database until FerretDB has replied, even if the client disconnects.
// A queued write is carried out even if the client disconnects. The gate also waits for
// unacknowledged writes. Clients can distinguish the front from a bare FerretDB: the reply of
// buildInfo contains mongodlmFront: true.
//
// Only one server at a time may use a folder, because a front serializes only the writes of its own
// clients. [Start] locks the folder. If another server has locked the folder, Start returns
// [ErrDirInUse].
package configserver
