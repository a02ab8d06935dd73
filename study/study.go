package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// player is play. The tests play each case once.
var player = play

// Run plays each case with each generation. It returns a slice of plays for each case. When ctx
// ends, Run waits for the running plays and returns the cause.
func Run(ctx context.Context, cases []Case, generations []Generation) ([][]Play, error) {
	plays := make([][]Play, len(cases))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var players sync.WaitGroup
	for i, c := range cases {
		plays[i] = make([]Play, len(generations))
		for j, g := range generations {
			slots <- struct{}{}
			players.Go(func() {
				if ctx.Err() == nil {
					plays[i][j] = player(c, g)
				}
				<-slots
			})
		}
	}
	players.Wait()
	return plays, context.Cause(ctx)
}

// FindCases finds the case with the given name, or else the cases with this text in the name and the
// cases of the hole with this number. A hole is a known weakness, numbered in docs/semantics.md. If
// FindCases finds no case, the error lists all names.
func FindCases(name string) (found []Case, err error) {
	var names []string
	for _, c := range Cases() {
		if c.Name == name {
			return []Case{c}, nil
		}
		if name != "" && strings.Contains(c.Name, strings.ToLower(name)) ||
			slices.Contains(strings.Fields(c.Hole), strings.ToUpper(name)) {
			found = append(found, c)
		}
		names = append(names, c.Name)
	}
	if len(found) == 0 {
		err = fmt.Errorf("there is no case %.60q; the cases are %s", name, strings.Join(names, ", "))
	}
	return found, err
}

// FindGeneration returns the generation with this name, such as 3.2. If no such generation exists,
// the error lists the names.
func FindGeneration(name string) (Generation, error) {
	var names []string
	for _, g := range Generations() {
		if g.Name == name {
			return g, nil
		}
		names = append(names, g.Name)
	}
	return Generation{}, fmt.Errorf("the names are %s", strings.Join(names, ", "))
}
