package waitqueue_test

import (
	"slices"
	"testing"

	"mongodlm/catalog"
)

// Tries to break: whoever gives way to most is told, nobody without whom the others do, and who
// gives up in the middle of a line lets nobody in behind him.
func TestDeadlock_WhoGivesUp(t *testing.T) {
	t.Parallel()
	const x, s = catalog.Exclusive, catalog.Shared
	for name, c := range map[string]struct {
		locks map[string]*playLock
		holds map[int][]int
		told  []int
	}{
		"a writer who waits for readers who wait for it": {
			locks: map[string]*playLock{
				"hub":    {holders: []playParty{{1, x}}, line: []playParty{{12, x}, {13, x}, {14, x}}},
				"shared": {holders: []playParty{{2, s}, {3, s}, {4, s}}, line: []playParty{{11, x}}},
			},
			holds: map[int][]int{11: {1}, 12: {2}, 13: {3}, 14: {4}},
			told:  []int{11},
		},
		"three who wait for one, and a way around it": { // 21 gives way to most, 31 breaks both circles
			locks: map[string]*playLock{
				"x": {holders: []playParty{{1, x}}, line: []playParty{{11, x}, {12, x}, {13, x}}},
				"p": {holders: []playParty{{2, x}}, line: []playParty{{21, x}, {22, x}}},
				"a": {holders: []playParty{{3, x}}, line: []playParty{{31, x}}},
				"b": {holders: []playParty{{4, x}}, line: []playParty{{41, x}}},
			},
			holds: map[int][]int{11: {3}, 12: {3}, 13: {3}, 21: {1}, 22: {4}, 31: {2}, 41: {3}},
			told:  []int{31},
		},
		// 13 and 14 hold up what 1 waits for; without 13 the reader 14 stands behind 11.
		"in the middle of a line": {
			locks: map[string]*playLock{
				"a": {holders: []playParty{{1, s}}, line: []playParty{{11, x}, {12, s}, {13, x}, {14, s}}},
				"b": {holders: []playParty{{2, x}},
					line: []playParty{{21, x}, {22, x}, {23, x}, {24, x}, {25, x}}},
			},
			holds: map[int][]int{11: {}, 12: {}, 13: {2}, 14: {1}, 21: {1}, 22: {1}, 23: {1}, 24: {1},
				25: {1}},
			told: []int{13, 14},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &play{locks: c.locks, holds: c.holds}
			if told := p.told(100, nil); !slices.Equal(told, c.told) {
				t.Errorf("%v are told, want %v", told, c.told)
			}
		})
	}
}
