package integration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// injected counts the faults that really happened.
var injected tallyOfFaults

type tallyOfFaults struct {
	mu     sync.Mutex                // guards counts
	counts map[string]map[string]int // by deployment, then by kind and operation
}

// add counts one fault of an operation on a deployment.
func (c *tallyOfFaults) add(deployment, kind, op string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]map[string]int{}
	}
	if c.counts[deployment] == nil {
		c.counts[deployment] = map[string]int{}
	}
	c.counts[deployment][kind+" at "+op]++
}

// String returns one line for each deployment with faults.
func (c *tallyOfFaults) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, deployment := range slices.Sorted(maps.Keys(c.counts)) {
		total, kinds := 0, map[string]int{}
		for kindAndOp, n := range c.counts[deployment] {
			kind, _, _ := strings.Cut(kindAndOp, " at ")
			kinds[kind] += n
			total += n
		}
		fmt.Fprintf(&b, "integration: %d faults on %s:", total, deployment)
		for i, kind := range slices.Sorted(maps.Keys(kinds)) {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, " %s %d", kind, kinds[kind])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
