// Package integration holds the tests that need a server. The same suite runs on every available
// kind of deployment:
//
//	embedded    the server of package configserver, always available
//	standalone  one mongod that the suite starts
//	replicaset  three mongods in a replica set
//	configsvr   one mongod with --configsvr; the documents are in its database config
//	mongos      a sharded cluster of two shards; the collections are on one of them
//	sharded     the same cluster; locks and lockpings are sharded by a hash of _id
//	uri         the server that MONGODLM_TEST_URI names
//
// On the server of uri the suite creates databases named distlock_it_<random> and drops them at the
// end. A config server refuses new databases: the suite then uses unique names in database config.
//
// MONGOD names the mongod program, version 4.4 or newer. MONGOS names a mongos of the same version.
// Both default to the program on PATH. The suite skips a missing deployment with the reason. The
// last line of the output lists the deployments that ran.
//
// A test waits for a condition, up to a time limit. Its assertions hold on a slow machine too.
package integration
