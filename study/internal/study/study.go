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
	all := append(Cases(), Quiet())
	if i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name }); i >= 0 {
		return all[i], nil, true
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return Case{}, Nearest(name, names), false
}

// FindCases returns the case of a name, those of a hole, or those with a part of their name;
// without any the names that are most like it.
func FindCases(name string) (found []Case, nearest []string) {
	one, nearest, ok := FindCase(name)
	if ok {
		return []Case{one}, nil
	}
	for _, has := range []func(c Case) bool{
		func(c Case) bool { return strings.EqualFold(c.Hole, name) },
		func(c Case) bool { return name != "" && strings.Contains(c.Name, strings.ToLower(name)) },
	} {
		for _, c := range Cases() {
			if has(c) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found, nearest
}

// FindGeneration returns the generation of a name or of a release, such as 2.4 or r2.4.14; all
// names are near.
func FindGeneration(name string) (g Generation, names []string, ok bool) {
	var r release
	text := strings.TrimPrefix(name, "r")
	_, _ = fmt.Sscanf(text+".99", "%d.%d.%d", &r[0], &r[1], &r[2])
	short := fmt.Sprintf("%d.%d", r[0], r[1])
	whole := text == short || text == fmt.Sprintf("%s.%d", short, r[2])
	for _, one := range slices.Concat(Generations(), Others()) {
		if one.Name == name {
			return one, nil, true
		}
		names = append(names, one.Name)
		if from := one.from; whole && from != (release{}) && r.since(from[0], from[1], from[2]) &&
			!r.since(6, 1, 0) {
			g, ok = one, true
			g.Name, g.release = name, r
		}
	}
	if ok {
		return g, nil, true
	}
	return Generation{}, names, false
}

// Nearest returns up to three names that differ from a name by the fewest letters.
func Nearest(name string, names []string) []string {
	sorted := slices.Clone(names)
	slices.SortStableFunc(sorted,
		func(a, b string) int { return distance(name, a) - distance(name, b) })
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
