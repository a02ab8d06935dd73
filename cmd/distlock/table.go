package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"mongodlm/cmd/internal/words"
)

// unknownWidth is the width of a terminal that does not report it.
const unknownWidth = 80

// A layout is the format of a listing.
type layout struct {
	width int  // columns of the terminal; 0 when there is no bound
	whole bool // process ids are not shortened
}

// layoutOf returns the layout for an output: the width of a terminal, or the COLUMNS of a program
// that prints to one. A file, a pipe and --wide get the whole listing.
func layoutOf(out io.Writer, wide bool) layout {
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS")) // 0 if it is not a number
	f, ok := out.(*os.File)
	switch {
	case wide:
		return layout{whole: true}
	case ok && term.IsTerminal(int(f.Fd())):
		if own, _, err := term.GetSize(int(f.Fd())); err == nil && own > 0 {
			return layout{width: own}
		}
		if columns <= 0 {
			columns = unknownWidth
		}
		return layout{width: columns}
	case columns > 0:
		return layout{width: columns}
	}
	return layout{whole: true}
}

// longText is the length limit, in runes, of a text that is printed whole. It exceeds the limits of
// a name and of a reason; a foreign program may have stored any text.
const longText = 4096

// process shows a process id: whole, or as host and number.
func (l layout) process(id string) string {
	if !l.whole {
		id = short(id)
	}
	return l.text(id, 200)
}

// text shows a stored text, in a table: to so many runes, or whole.
func (l layout) text(s string, limit int) string {
	if l.whole {
		limit = longText
	}
	return shown(s, limit)
}

// label returns the name of a lock for a cell. A table cuts it.
func (l layout) label(name string) string { return words.LabelTo(name, longText) }

// A column is one of a table. In a table that is too wide, columns without information go first,
// then cells are cut, and then the last columns go. The first column names the row: it is cut in
// the middle, and never so short that two rows look alike.
type column struct {
	title string
	idle  string // text of a cell without information
	least int    // least width to which cells are cut; 0: they are not cut
	wide  bool   // only in a layout without a bound
}

// A table is rows of cells, one for each column.
type table struct {
	columns []column
	rows    [][]string
}

// print writes the table in the layout, and a hint if a part is missing.
func (t table) print(w io.Writer, l layout) {
	widths, cut := t.fit(l)
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		var line strings.Builder
		for i, text := range row {
			if widths[i] > 0 {
				if i == 0 {
					text = cutMiddle(text, widths[i])
				}
				text = cutTo(text, widths[i])
				line.WriteString(text + strings.Repeat(" ", widths[i]-cells(text)+gap))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	if cut {
		fmt.Fprintln(w, cutTo("(shortened; --wide shows all)", l.width))
	}
}

// gap is the space between two columns.
const gap = 2

// fit returns the width of each column, 0 for a dropped one, and whether a part is missing.
func (t table) fit(l layout) (widths []int, cut bool) {
	if l.width > 0 && t.columns[0].least > 0 {
		t.columns = slices.Clone(t.columns)
		t.columns[0].least = t.distinctWidth(t.columns[0].least)
	}
	for n := len(t.columns); n > 0; n-- { // without the last ones if need be
		widths = make([]int, len(t.columns))
		for i, c := range t.columns[:n] {
			if c.wide && !l.whole {
				continue
			}
			widths[i] = cells(c.title)
			for _, row := range t.rows {
				widths[i] = max(widths[i], cells(row[i]))
			}
		}
		for i, c := range t.columns {
			if l.width > 0 && total(widths) > l.width && c.idle != "" && t.idles(i) {
				widths[i] = 0
			}
		}
		if l.width == 0 || total(widths) <= l.width {
			return widths, n < len(t.columns)
		}
		if t.shrink(widths, l.width, 2) || t.shrink(widths, l.width, 1) {
			return widths, true
		}
	}
	return widths, true
}

// distinctWidth returns the least width of the first column, least or more, at which no two
// different cells are shown alike.
func (t table) distinctWidth(least int) int {
	whole, longest := map[string]bool{}, least
	for _, row := range t.rows {
		whole[row[0]] = true
		longest = max(longest, cells(row[0]))
	}
	for ; least < longest; least++ {
		cut := map[string]bool{}
		for text := range whole {
			cut[cutMiddle(text, least)] = true
		}
		if len(cut) == len(whole) {
			break
		}
	}
	return least
}

// shrink cuts the widest columns until all of them fit, each to so many times its least width at
// most, and reports whether they do.
func (t table) shrink(widths []int, limit, times int) bool {
	for total(widths) > limit {
		widest := -1
		for i, c := range t.columns {
			least := times * c.least
			if i == 0 {
				least = c.least
			}
			if c.least > 0 && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// total returns the width of a row.
func total(widths []int) int {
	sum := -gap
	for _, w := range widths {
		if w > 0 {
			sum += w + gap
		}
	}
	return sum
}

// idles reports whether no cell of a column has information.
func (t table) idles(i int) bool {
	for _, row := range t.rows {
		if row[i] != t.columns[i].idle && row[i] != "-" {
			return false
		}
	}
	return true
}

// cells is how many columns of a terminal a text takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case combining(r):
		return 0
	case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cutMiddle cuts the middle out of a text that takes more than limit columns of a terminal.
func cutMiddle(s string, limit int) string {
	runes := []rune(s)
	for n := len(runes); n > 1 && cells(s) > limit; n-- {
		s = words.Middle(string(runes), n-1)
	}
	return s
}

// cutTo cuts the end of a text that takes more than limit columns of a terminal; two dots show that
// it was cut.
func cutTo(s string, limit int) string {
	const mark = ".."
	if cells(s) <= limit {
		return s
	}
	var b strings.Builder
	left := limit - len(mark)
	for _, r := range s {
		if left -= runeCells(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + mark
}

// chunks returns the words of a text, each with the following space. A word that is longer than
// limit is cut into several.
func chunks(text string, limit int) (all []string) {
	for _, word := range strings.SplitAfter(text, " ") {
		for limit > 0 && cells(strings.TrimRight(word, " ")) > limit {
			at := 0
			for i, r := range word {
				if at = i; i > 0 && cells(word[:i])+runeCells(r) > limit {
					break
				}
			}
			all, word = append(all, word[:at]), word[at:]
		}
		all = append(all, word)
	}
	return all
}

// wrap writes a sentence in as many lines as the layout needs, with an indent from the second line.
func wrap(w io.Writer, l layout, text, indent string) {
	line, lead := "", ""
	for i, word := range chunks(text, l.width-len(indent)) {
		if i > 0 && l.width > 0 && strings.TrimSpace(line) != "" &&
			cells(line+strings.TrimRight(word, " ")) > l.width {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = lead
		}
		line += word
		if lead == "" {
			lead = indent
		}
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
