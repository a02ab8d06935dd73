package study

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Run plays cases by generations and returns the plays in that order: all generations of the first
// case, then all of the second. When ctx ends it returns its cause, after the running plays.
func Run(ctx context.Context, cases []Case, generations []Generation) ([]Play, error) {
	plays := make([]Play, len(cases)*len(generations))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() { // ends when all is played
			for i := range next {
				plays[i] = play(cases[i/len(generations)], generations[i%len(generations)])
			}
		})
	}
	var err error
	for i := 0; i < len(plays) && err == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	close(next)
	workers.Wait()
	return plays, err
}

// FindCases returns the case of a name, the cases of a hole, or the cases with a part of their
// name; without a match, the names of all.
func FindCases(name string) (found []Case, names []string) {
	all := append(Cases(), Quiet())
	for _, has := range []func(c Case) bool{
		func(c Case) bool { return c.Name == name },
		func(c Case) bool { return slices.Contains(strings.Fields(c.Hole), strings.ToUpper(name)) },
		func(c Case) bool { return name != "" && strings.Contains(c.Name, strings.ToLower(name)) },
	} {
		for _, c := range all {
			if has(c) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	for _, c := range all {
		names = append(names, c.Name)
	}
	return nil, names
}

// series are the releases that existed, by their first two numbers: from which third number to
// which, and the column that plays them.
var series = []struct {
	name        string
	first, last int
	column      string
}{
	{"1.5", 5, 8, "1.8"}, {"1.6", 0, 5, "1.8"}, {"1.7", 0, 6, "1.8"}, {"1.8", 0, 5, "1.8"},
	{"1.9", 0, 2, "2.0"}, {"2.0", 0, 9, "2.0"}, {"2.1", 0, 2, "2.0"}, {"2.2", 0, 7, "2.0"},
	{"2.3", 0, 2, "2.0"}, {"2.4", 0, 14, "2.0"}, {"2.5", 0, 5, "2.6"}, {"2.6", 0, 12, "2.6"},
	{"3.0", 0, 15, "2.6"}, {"3.2", 0, 22, "3.2"}, {"3.4", 0, 24, "3.2"}, {"3.6", 0, 23, "3.2"},
	{"4.0", 0, 28, "3.2"}, {"4.2", 0, 25, "3.2"}, {"4.4", 0, 29, "3.2"}, {"5.0", 0, 31, "3.2"},
	{"6.0", 0, 27, "3.2"},
}

// FindGeneration returns the generation of a column, or of a release such as 2.4 or r2.4.14; for
// any other name it returns the list of valid names.
func FindGeneration(name string) (g Generation, list string, ok bool) {
	all := Generations()
	var names []string
	for _, g := range all {
		if g.Name == name {
			return g, "", true
		}
		names = append(names, g.Name)
	}
	text := strings.TrimPrefix(name, "r")
	for _, of := range series {
		for patch := of.first; patch <= of.last; patch++ {
			whole := fmt.Sprintf("%s.%d", of.name, patch)
			if text != whole && (text != of.name || patch < of.last) {
				continue
			}
			i := slices.IndexFunc(all, func(g Generation) bool { return g.Name == of.column })
			g := all[i]
			g.Name, g.Title, g.release = name, "release "+whole, number(whole)
			return g, "", true
		}
		names = append(names, fmt.Sprintf("%s.%d to .%d", of.name, of.first, of.last))
	}
	return Generation{}, strings.Join(names, ", "), false
}
