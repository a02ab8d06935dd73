// Package mongodtest starts real mongod programs for tests: a standalone, a replica set, a config
// server, or a sharded cluster with a mongos. They use free loopback ports and temporary folders.
// The package can stop, kill, pause and step down each program.
//
// Every process is ended by its id. If the test program dies before it has closed a deployment, for
// example at its time limit, a helper kills the servers when a pipe ends.
//
// The package is for tests only. The servers are fast and not durable. Without Options.Auth every
// user of the machine may write to them.
package mongodtest
