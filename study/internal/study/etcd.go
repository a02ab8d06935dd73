package study

import "time"

// newEtcd is the lock of etcd's package concurrency: a lease per process, a key per attempt, and
// the oldest key has the lock (https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency, NewSession
// and Mutex). The client keeps the lease alive, and counts it as gone when no answer has come for
// its life (https://pkg.go.dev/go.etcd.io/etcd/client/v3, Lease.KeepAlive; client/v3/lease.go
// deadlineLoop). The revision of the key is the fence of which
// https://etcd.io/docs/v3.5/learning/why/, section Notes on the usage of lock and lease, tells.
//
// Not played: the members of the cluster; a new leader gives each lease its whole life again.
func newEtcd(p *process, _ release) manager {
	const ttl = 60 * time.Second // defaultSessionTTL of the package
	// server/lease/lessor.go, client/v3/lease.go
	return newClient(p,
		keeping{life: ttl, beat: ttl / 3, round: 500 * time.Millisecond, retry: 500 * time.Millisecond,
			itself: time.Second}) // deadlineLoop
}
