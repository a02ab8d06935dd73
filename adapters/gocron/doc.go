// Package gocronlock implements a Locker and an Elector for the scheduler gocron
// (github.com/go-co-op/gocron/v2). It uses the locks of package distlock and the slots of package
// singleton.
//
// gocron asks a Locker before a job runs, and notifies it after the run. A Locker that only locks
// lets a quick job run once for each process: the lock is free again before the next process's
// timer fires (gocron issue 841). [Locker] also begins a slot of the job. A slot runs once for all
// processes. The server's clock decides which slot is due.
//
// # Limits
//
// gocron passes a Locker the name of the job, but not the time at which the run is due. So the
// Locker takes the latest slot by the server's clock. A process whose clock is ahead by more than
// Config.Early asks too early. It gets the previous slot, or none if that slot has begun. No slot
// runs twice. If the clocks of all processes are wrong, slots run late. A slot that no process asks
// for does not run. singleton.RunSlots does not have these limits.
//
// The name of a job is also the name of its lock and record. Jobs that use the same method value or
// closure have one name; gocron.WithName gives them different names. Of two jobs with one name only
// one runs. The other gets [ErrSameName], which gocron.AfterLockError receives and the Manager's
// logger records.
//
// gocron does not notify a job of the loss of its lock, so a job that was paused may continue in
// parallel with the next run. gocron does not pass a Locker the result of the job, so the record
// has the state "done" even after a failure. The slot of a process that dies does not run again.
// gocron asks no Locker if the scheduler has an Elector.
package gocronlock
