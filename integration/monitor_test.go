package integration_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"mongodlm/distlock"
)

// A counter counts the commands that a client sends, by name and collection.
type counter struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

func (c *counter) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.counts == nil {
			c.counts = map[string]int{}
		}
		c.counts[strings.TrimSpace(e.CommandName+" "+collection)]++
	}}
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.counts)
}

func (c *counter) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

func (c *counter) total() int {
	n := 0
	for _, count := range c.all() {
		n += count
	}
	return n
}

func (c *counter) String() string { return fmt.Sprint(c.all()) }

// A slow process has a long ping interval, a long takeover time and a constant poll interval.
func slow(cfg *distlock.Config) {
	cfg.Ping, cfg.Takeover, cfg.Margin = 10*time.Second, 10*time.Minute, 0
	cfg.Poll, cfg.PollMax, cfg.CommandTimeout = 500*time.Millisecond, 500*time.Millisecond, time.Minute
}
