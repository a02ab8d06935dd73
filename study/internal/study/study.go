package study

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// Run plays cases by generations and returns the plays in that order: all generations of the first
// case, then those of the second. When ctx ends it returns its cause, after the plays that have
// begun.
func Run(ctx context.Context, cases []Case, generations []Generation) ([]Play, error) {
	plays := make([]Play, len(cases)*len(generations))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() { // ends when there is no more to play
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

// FindCase returns the case of a name; without one the names that are most like it.
func FindCase(name string) (c Case, nearest []string, ok bool) {
	all := Cases()
	if i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name }); i >= 0 {
		return all[i], nil, true
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return Case{}, Nearest(name, names), false
}

// FindGeneration is FindCase for generations; all of their names are near.
func FindGeneration(name string) (g Generation, names []string, ok bool) {
	for _, g := range Generations() {
		if g.Name == name {
			return g, nil, true
		}
		names = append(names, g.Name)
	}
	return Generation{}, names, false
}

// Nearest returns up to three names that differ from a name by the fewest letters.
func Nearest(name string, names []string) []string {
	sorted := slices.Clone(names)
	slices.SortStableFunc(sorted, func(a, b string) int { return distance(name, a) - distance(name, b) })
	return sorted[:min(3, len(sorted))]
}

// distance is how many letters must be put in, taken out or changed; what one name has in front of
// the other's end counts little.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := left
			if a[i] != b[j] {
				change++
			}
			left = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
