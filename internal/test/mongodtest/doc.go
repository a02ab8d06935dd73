// Package mongodtest starts real mongod programs for tests: a standalone, a replica set, a config
// server, a sharded cluster with its mongos, on free loopback ports and in temporary folders, and
// stops, kills, pauses and steps them down.
//
// Every process is ended by its id. If the test program dies before it has closed a deployment, for
// example at its time limit, a helper that waits for the end of a pipe kills the servers.
//
// It is for tests only: the servers are fast and not durable, and without Options.Auth every user
// of the machine may write to them.
package mongodtest
