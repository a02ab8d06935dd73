// Package mongodtest starts mongod programs for tests: a standalone, a replica set, a config
// server, or a sharded cluster with a mongos. The programs use free loopback ports and temporary
// folders. A test can kill or pause a server, or make the primary step down.
//
// The package ends its programs by their process ids. If the test program dies, a helper kills
// them.
//
// The servers are fast and not durable. Without Options.Auth every user of the machine can write to
// them.
package mongodtest
