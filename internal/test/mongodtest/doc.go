// Package mongodtest starts real mongod programs for tests: a standalone, a replica set, a config
// server, or a sharded cluster with a mongos. They use free loopback ports and temporary folders.
// The package can stop, kill, pause and step down each program.
//
// Every process is ended by its id. The test program may die before it closes a deployment, for
// example at its time limit. A pipe then ends, and a helper kills the servers.
//
// The package is for tests only. The servers are fast and not durable. Without Options.Auth every
// user of the machine may write to them.
package mongodtest
