// Package scrape serves the metrics of a command to Prometheus. It implements the flag --metrics of
// distlock and balancer-demo.
package scrape
