package study

import "time"

// newZookeeper is the lock of https://zookeeper.apache.org/doc/current/recipes.html, section Locks:
// a sequential ephemeral node per attempt, and the lowest number has the lock. Its zxid is the
// fence, as https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html proposes,
// section Making the lock safe with fencing. Only the server ends a session, and a client that is
// cut off is told when it reaches the server again
// (https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html, section ZooKeeper Sessions).
// The recipe does not ask the holder to stop when it is disconnected; who does so is safer than
// what is played here.
//
// Not played: the members of the ensemble.
func newZookeeper(p *process, _ release) manager {
	const tick, timeout = 2 * time.Second, 30 * time.Second // the timeout is 2 to 20 ticks
	return newClient(p, keeping{life: timeout, round: tick, beat: timeout / 3, retry: time.Second})
}
