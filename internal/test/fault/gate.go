package fault

import (
	"context"
	"slices"
	"sync"
)

// A Gate passes the commands of a store through a hook and counts them. The hook works like a
// [Hook], but gets the name of the command. Without a hook, every command is applied. A Gate is
// safe for concurrent use.
type Gate struct {
	mu     sync.Mutex // guards the rest
	hook   func(ctx context.Context, command string, apply func() error) error
	counts map[string]int
}

// Set sets the hook. A nil hook applies every command.
func (g *Gate) Set(hook func(ctx context.Context, command string, apply func() error) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = hook
}

// Sent returns the number of commands with the given names. Without names, it returns the number of
// all commands.
func (g *Gate) Sent(commands ...string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for command, times := range g.counts {
		if len(commands) == 0 || slices.Contains(commands, command) {
			n += times
		}
	}
	return n
}

// Pass passes a command through a Gate.
func Pass[T any](ctx context.Context, g *Gate, command string, apply func() (T, error)) (T, error) {
	g.mu.Lock()
	if g.counts == nil {
		g.counts = map[string]int{}
	}
	g.counts[command]++
	hook := g.hook
	g.mu.Unlock()
	if hook == nil {
		return apply()
	}
	var mu sync.Mutex // apply may continue after hook has returned
	var got T
	err := hook(ctx, command, func() error {
		result, err := apply()
		mu.Lock()
		defer mu.Unlock()
		got = result
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return got, err
}
