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

// FindCases finds the case with the given name. If no case has this name, FindCases finds the cases
// of the hole with this number. A hole is a known weakness, numbered in docs/semantics.md. Without
// such a case, FindCases finds the cases whose names contain this text. If FindCases finds no case,
// the error lists all names.
func FindCases(name string) (found []Case, err error) {
	var names []string
	var parts []Case
	for _, c := range written() {
		if c.Name == name {
			return []Case{c}, nil
		}
		if slices.Contains(strings.Fields(c.Hole), strings.ToUpper(name)) {
			found = append(found, c)
		} else if name != "" && strings.Contains(c.Name, strings.ToLower(name)) {
			parts = append(parts, c)
		}
		names = append(names, c.Name)
	}
	if len(found) > 0 {
		return found, nil
	}
	if len(parts) == 0 {
		err = fmt.Errorf("there is no case %.60q; the cases are %s", name, strings.Join(names, ", "))
	}
	return parts, err
}

// series lists the released versions: the first two numbers, the range of the third number, and the
// column of the generation.
var series = []struct {
	name        string
	first, last int
	column      string
}{
	{"1.5", 5, 8, "1.8"}, {"1.6", 0, 5, "1.8"}, {"1.7", 0, 6, "1.8"}, {"1.8", 0, 5, "1.8"},
	{"1.9", 0, 2, "2.0"}, {"2.0", 0, 9, "2.0"}, {"2.1", 0, 2, "2.0"}, {"2.2", 0, 7, "2.0"},
	{"2.3", 0, 2, "2.0"}, {"2.4", 0, 14, "2.0"}, {"2.5", 0, 5, "2.6"}, {"2.6", 0, 12, "2.6"},
	{"3.0", 0, 15, "2.6"}, {"3.2", 0, 22, "3.2"}, {"3.4", 0, 24, "3.2"}, {"3.6", 0, 23, "3.2"},
	{"4.0", 0, 28, "3.2"}, {"4.2", 0, 25, "3.2"}, {"4.4", 0, 31, "3.2"}, {"5.0", 0, 34, "3.2"},
	{"6.0", 0, 29, "3.2"},
}

// FindGeneration returns the generation with this name, such as 3.2. The name may also be that of a
// release, such as 2.4 or r2.4.14. If no such generation or release exists, the error lists the
// valid names.
func FindGeneration(name string) (Generation, error) {
	columns := map[string]Generation{}
	var names []string
	for _, g := range Generations() {
		columns[g.Name] = g
		names = append(names, g.Name)
	}
	if g, ok := columns[name]; ok {
		return g, nil
	}
	text := strings.TrimPrefix(name, "r")
	for _, of := range series {
		for patch := of.first; patch <= of.last; patch++ {
			whole := fmt.Sprintf("%s.%d", of.name, patch)
			if text == whole || text == of.name && patch == of.last {
				g := columns[of.column]
				g.Name, g.Title, g.release = name, "release "+whole, number(whole)
				return g, nil
			}
		}
		names = append(names, fmt.Sprintf("%s.%d to .%d", of.name, of.first, of.last))
	}
	return Generation{}, fmt.Errorf("the names are %s", strings.Join(names, ", "))
}
