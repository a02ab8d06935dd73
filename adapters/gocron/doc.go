// Package gocronlock is a Locker and an Elector for the scheduler gocron
// (github.com/go-co-op/gocron/v2), on the locks of package distlock and the slots of package
// singleton.
//
// A Locker of gocron is asked when a job is about to run, and told when it has run. One that only
// locks lets a quick job run once for each process: the lock is free again before the next
// process's timer fires (gocron issue 841). [Locker] locks, and then begins a slot of the job by
// the server's clock, once for all processes.
//
// # Limits
//
// gocron tells a Locker the name of the job and not the time for which it runs. So the Locker takes
// the latest slot by the server's clock. A process whose clock is ahead by more than Config.Early
// asks too soon, and is given the slot before, if nobody has begun it, or none. That is no slot
// twice; but where the clocks of all processes are wrong, slots run late, and one that nobody asks
// for is not run. singleton.RunSlots has neither limit.
//
// The name of a job is that of its lock and its record. Jobs that are one method value, or one
// closure, have one name unless gocron.WithName gives each its own: then one of them runs, and the
// other gets [ErrSameName], which gocron.AfterLockError hears and the Manager's logger tells.
//
// gocron does not tell a job that its lock is lost: a job that was paused goes on beside the next
// one. It does not tell a Locker whether the job failed, so the record says that it is done. The
// slot of a process that dies is not run again. gocron asks no Locker where there is an Elector.
package gocronlock
