// Package gocronlock implements a Locker and an Elector for the scheduler gocron
// (github.com/go-co-op/gocron/v2). It uses the locks of package distlock and the slots of package
// singleton.
//
// gocron asks a Locker before a job runs, and notifies it after the run. A Locker that only locks
// lets a quick job run once for each process: the lock is free again before the next process's
// timer fires (gocron issue 841). [Locker] locks, and then begins a slot of the job by the server's
// clock. A slot runs once for all processes.
//
// # Limits
//
// gocron passes a Locker the name of the job, but not the time for which the job runs. So the
// Locker takes the latest slot by the server's clock. A process asks too early if its clock is
// ahead by more than Config.Early. It then gets the previous slot, or no slot if that has begun. No
// slot runs twice. If the clocks of all processes are wrong, slots run late. A slot that no process
// asks for does not run. singleton.RunSlots has neither limit.
//
// The name of a job names its lock and its record. Jobs that use the same method value or closure
// have one name; gocron.WithName gives them different names. Of two jobs with one name only one
// runs. The other gets [ErrSameName], which gocron.AfterLockError receives and the Manager's logger
// records.
//
// gocron does not notify a job of the loss of its lock: a paused job continues in parallel with the
// next run. gocron does not pass a Locker the result of the job, so the record has the state "done"
// even after a failure. The slot of a process that dies does not run again. gocron asks no Locker
// if the scheduler has an Elector.
package gocronlock
