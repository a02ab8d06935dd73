// Package balancer is one balancer process of the demo: what mongos' balancer did in a round, in a loop of
// package singleton, and the reading and writing of the cluster's metadata that it needs. What to
// move is decided in package cluster; this package does it.
//
// A round: record it, read the cluster, move one chunk of each collection that needs it. When to run,
// singleton reads in config.settings. After each round the lock goes to the balancer that stands first in
// the line; mongos polled until 3.2, and held the lock for good from 3.4 on. Every move
// is guarded twice: the guard is asked before it, and its filter names the fence, so that a holder
// that lost the lock without knowing it cannot undo what its successor did.
package balancer
