// Package balancer is one balancer process of the demo: the loop of mongos' Balancer::run over the
// distributed lock, and the reading and writing of the cluster's metadata that it needs. What to
// move is decided in package cluster; this package does it.
//
// A round: read config.settings, wait in line for the lock "balancer", read the settings again, record
// the round, read the cluster, move one chunk of each collection that needs it, release, sleep. The
// release grants the lock to the balancer that stands first in the line; mongos polled. Every move
// is guarded twice: the guard is asked before it, and its filter names the fence, so that a holder
// that lost the lock without knowing it cannot undo what its successor did.
package balancer
