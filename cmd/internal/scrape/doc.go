// Package scrape serves the metrics of a command to Prometheus: what the flag --metrics of distlock
// and of balancer-demo asks for.
package scrape
