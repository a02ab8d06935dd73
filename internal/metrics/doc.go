// Package metrics defines the metrics of the work under locks: of terms, rounds and rows. Package
// adapters/prometheus shows them.
//
// Elections, loops, schedules and queues tell the Observer of their Manager when it is an
// [Observer] of this package, too, see [Of]. What they tell costs no command. Only what stands in a
// queue is asked of its server, when somebody reads the metrics, by one process of the queue.
package metrics
