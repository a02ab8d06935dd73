// Package integration holds the tests that need a server. The same tests run on each available kind
// of deployment:
//
//	embedded    the server of package configserver, always available
//	standalone  one mongod that the tests start
//	replicaset  three mongods in a replica set
//	configsvr   one mongod with --configsvr; the documents are in its database named config
//	mongos      a sharded cluster of two shards; the collections are on one of them
//	sharded     the same cluster; locks and lockpings are sharded by a hash of _id
//	uri         the server that MONGODLM_TEST_URI names
//
// On the server named by MONGODLM_TEST_URI, the tests create databases named distlock_it_<random>
// and drop them at the end. If this server is a config server, it refuses new databases. In that
// case the tests use unique names in its database named config.
//
// MONGOD names the mongod program, version 4.4 or newer. MONGOS names a mongos of the same version.
// Both default to the program on PATH. If a deployment is missing, its tests are skipped with the
// reason.
//
// A test waits for a condition, up to a time limit. Its assertions also hold on a slow machine.
package integration
