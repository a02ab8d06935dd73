// Package mongodtest starts real mongod programs for tests: a standalone, a replica set, a config
// server, a sharded cluster with its mongos, on free loopback ports and in temporary folders, and
// stops, kills, pauses and steps them down.
//
// Every process is ended by its id. Should the test program die without having closed a deployment,
// as it does when it runs into its time limit, a helper that waits for the end of a pipe kills the
// servers.
//
// It is for tests only: the servers answer quickly and forget everything, the data is not meant to
// survive, and unless Options.Auth is set everybody on the machine may write to them.
package mongodtest
