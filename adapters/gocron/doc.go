// Package gocronlock is a Locker and an Elector for the scheduler gocron
// (github.com/go-co-op/gocron/v2), on the locks of package distlock and the slots of package
// singleton.
//
// gocron asks a Locker before a job runs, and notifies it after the run. A Locker that only locks
// lets a quick job run once for each process: the lock is free again before the next process's
// timer fires (gocron issue 841). [Locker] locks, and then begins a slot of the job by the server's
// clock, once for all processes.
//
// # Limits
//
// gocron passes a Locker the name of the job, but not the time for which it runs. So the Locker
// takes the latest slot by the server's clock. A process whose clock is ahead by more than
// Config.Early asks too early, and gets the previous slot, if no process has begun it, or no slot.
// No slot runs twice; but if the clocks of all processes are wrong, slots run late, and a slot that
// no process asks for is not run. singleton.RunSlots has neither limit.
//
// The name of a job names its lock and its record. Jobs that are one method value, or one closure,
// have one name unless gocron.WithName gives them different ones: then one of them runs, and the
// other gets [ErrSameName], which gocron.AfterLockError receives and the Manager's logger records.
//
// gocron does not notify a job that its lock is lost: a paused job continues in parallel with the
// next run. It does not pass a Locker the result of the job, so the record says "done" after a
// failure, too. The slot of a process that dies is not run again. gocron asks no Locker if there is
// an Elector.
package gocronlock
