// Package metrics defines the metrics of work that is done under locks: terms, rounds and rows.
// Package adapters/prometheus exports them.
//
// Elections, loops, schedules and queues send samples to the Observer of their Manager if it also
// implements [Observer], see [Of]. These samples cost no command. Only the number of
// rows in a queue needs a command: one process of the queue reads it when the metrics are read.
package metrics
