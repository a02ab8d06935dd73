// Package metrics defines the metrics of elections, loops, schedules and queues. Package
// adapters/prometheus exports them.
//
// The observer of a Manager may also implement [Observer], see [Of]. In that case elections, loops,
// schedules and queues send samples to it. These samples cost no command. Only the metrics of the
// rows in a queue need commands. One process of the queue sends these commands when the metrics are
// read.
package metrics
