package view

import (
	"fmt"
	"strings"
)

// bars draws a row for every shard: its chunks as a bar, their number, and the number of each
// collection. All bars have one scale: the most loaded shard fills the room. Collections that find
// no room for their column are missing, the last ones first; they are counted in the bar.
func bars(s State, rows, width int) []string {
	const column = 8 // the width of a collection's column
	shown := min(len(s.Collections), (width-40)/(column+1))
	room := width - 28 - shown*(column+1)
	head := fmt.Sprintf("%-*s%7s", 20+room, "chunks on", "all")
	for _, ns := range s.Collections[:shown] {
		head += fmt.Sprintf(" %*s", column, tail(ns, column))
	}
	lines := []string{head}
	most := 0
	for _, shard := range s.Shards {
		most = max(most, shard.Chunks)
	}
	for i, shard := range s.Shards {
		if i == rows {
			lines = append(lines, fmt.Sprintf("and %d more", len(s.Shards)-rows))
			break
		}
		name := clean(shard.Shard, 10)
		if shard.Draining {
			name += " draining"
		}
		line := fmt.Sprintf("%-20s%-*s%7d", name, room, bar(shard.Chunks, most, room),
			shard.Chunks)
		for _, ns := range s.Collections[:shown] {
			line += fmt.Sprintf(" %*d", column, shard.Collections[ns])
		}
		lines = append(lines, line)
	}
	return lines
}

// bar is as long in room as n is of most. Whatever is not zero has one mark at least.
func bar(n, most, room int) string {
	if n <= 0 || most <= 0 {
		return ""
	}
	return strings.Repeat("#", max(1, min(room, n*room/most)))
}

// tail cuts the name of a collection at its front, where namespaces are alike.
func tail(ns string, limit int) string {
	_, name, found := strings.Cut(ns, ".")
	if found && columns(ns) > limit {
		ns = name
	}
	return clean(ns, limit)
}
