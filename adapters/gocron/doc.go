// Package gocronlock implements a Locker and an Elector for the scheduler gocron
// (github.com/go-co-op/gocron/v2). It uses the locks of package distlock and the slots of package
// singleton.
//
// gocron calls the method Lock of a Locker before a job runs, and Unlock after the run. A lock
// alone is not enough. After a quick job the lock is free again before the timer of the next
// process fires, so each process runs the job (gocron issue 841). So [Locker] also begins a slot. A
// slot is one due run of a job. Each slot runs at most once across all processes. The server's
// clock determines which slot is due.
//
// # Limits
//
// gocron passes a Locker the name of the job, but not the time at which the run is due. So Lock
// begins the latest slot that is due by the server's clock. If the clock of a process is ahead by
// more than Config.Early, the process calls Lock too early. Then Lock begins the previous slot, or
// returns an error if that slot has already begun. No slot runs twice. If the clocks of all
// processes are wrong, slots run late. If no process calls Lock before the next slot is due, the
// slot does not run. singleton.RunSlots does not have these limits.
//
// The name of a job is also the name of its lock and of its record in the Store. By default, jobs
// with the same method value or closure have the same name. gocron.WithName gives them different
// names. If two jobs have the same name, only one of them runs. The other job gets [ErrSameName].
// An event listener of gocron.AfterLockError receives this error, and the Manager's logger logs it.
//
// gocron does not notify a job of the loss of its lock. So a paused job may continue after another
// process has begun the next run. gocron does not pass a Locker the result of the job, so the
// record has the state "done" even after a failure. If a process dies in a slot, the slot does not
// run again. If a scheduler has both an Elector and a Locker, gocron does not use the Locker.
package gocronlock
