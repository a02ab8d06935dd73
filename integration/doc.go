// Package integration holds the tests that need a server: the same suite on every kind of
// deployment that is available.
//
//	embedded    the server of package configserver, always
//	standalone  a mongod that the suite starts itself
//	replicaset  three of them
//	configsvr   one, started with --configsvr; the documents are in its database config
//	mongos      a sharded cluster of two shards: the collections are on one of them
//	sharded     the same cluster: locks and lockpings are sharded by a hash of _id
//	uri         the server that MONGODLM_TEST_URI names; the suite makes databases named
//	            distlock_it_<random> there and drops them, or, where a config server refuses that,
//	            uses separate names in database config
//
// A mongod is the program that MONGOD names, or the one on PATH; 4.4 or newer. A mongos, of the
// same version, is the one that MONGOS names, or the one on PATH. A missing deployment is skipped
// with the reason, and the last line lists the deployments that ran.
//
// No test sleeps and hopes: a test waits for a condition, for a bounded time, and its assertions
// hold on a slow machine too.
package integration
