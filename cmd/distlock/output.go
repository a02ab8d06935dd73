package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// The functions that format texts. The web page uses the same functions.
var (
	shown   = words.Shown
	named   = words.Named
	label   = words.Label
	short   = words.Short
	age     = words.Age
	instant = words.Instant
	marks   = words.Marks
	modeOf  = words.Mode
	remedy  = words.Remedy

	milliseconds = words.Milliseconds
	duration     = words.Duration
)

// safe replaces each character that a terminal could interpret by its \u escape.
func safe(text string) string {
	var safe strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			safe.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&safe, `\u%04x`, unit)
		}
	}
	return safe.String()
}

// output writes a result as a text or as JSON, in a single call. In JSON it escapes the characters
// that a terminal could interpret. The escapes do not change the values of strings.
func output(out io.Writer, asJSON, wide bool, result interface{ print(io.Writer, layout) }) error {
	var b bytes.Buffer
	if asJSON {
		text, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return err
		}
		b.WriteString(safe(string(text)) + "\n")
	} else {
		result.print(&b, layoutOf(out, wide))
	}
	_, err := out.Write(b.Bytes())
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// jsonTime returns a time for JSON. It returns nil for the zero time, which means unknown.
func jsonTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return instant(*t)
}

// A problemList contains the documents that cannot be parsed, each once.
type problemList []problem

func (l *problemList) add(all ...*distlock.MalformedError) {
	for _, bad := range all {
		if bad == nil {
			continue
		}
		p := problem{bad.Collection, bad.ID, bad.Field, bad.Problem, remedy(bad)}
		if !slices.Contains(*l, p) {
			*l = append(*l, p)
		}
	}
}

// unknownWidth is the assumed width of a terminal that does not report its width.
const unknownWidth = 80

// A layout is the width of the terminal in columns, or 0 without a bound. With a bound, process ids
// are shortened.
type layout int

// layoutOf returns the layout for an output. The width is that of the terminal, or the value of the
// variable COLUMNS. With --wide, the width has no bound. The same holds for a file or a pipe
// without COLUMNS.
func layoutOf(out io.Writer, wide bool) layout {
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS")) // 0 if it is not a number
	if f, _ := out.(*os.File); isTerminal(out) {
		if own, _, err := term.GetSize(int(f.Fd())); err == nil && own > 0 {
			columns = own
		} else if columns <= 0 {
			columns = unknownWidth
		}
	}
	if wide || columns <= 0 {
		return 0
	}
	return layout(columns)
}

// longText is the maximum length, in runes, of a string that is printed in full. It exceeds the
// limits of names and reasons, because a foreign program may have stored a longer string.
const longText = 4096

// process formats a process id. On a terminal it shortens the id to the host and the number of the
// process.
func (l layout) process(id string) string {
	if l > 0 {
		return words.Middle(shown(short(id), longText), 200)
	}
	return shown(id, longText)
}

// text formats a stored string for a table. On a terminal it cuts the string to limit runes.
func (l layout) text(s string, limit int) string {
	if l == 0 {
		limit = longText
	}
	return shown(s, limit)
}

// A column is one column of a table. If a table is too wide, columns without information are
// dropped first. Then cells are cut, and then columns are dropped: spare columns, then the others
// from the last to the first, and then the processes. The cells of the first column and of
// processes name things, so they are cut in the middle. Different rows remain different: a table
// that is still too wide is printed with whole cells.
type column struct {
	title    string
	blank    string // the text of a cell without information
	minWidth int    // minimum width for cut cells; 0 means that cells are not cut
	wide     bool   // shown only without a bound
	spare    bool
	process  bool
}

type table struct {
	columns []column
	rows    [][]string
	empty   string // printed instead of a table without rows
}

// print writes the table in the layout. It adds a hint if a part of the table is missing.
func (t table) print(w io.Writer, l layout) {
	if len(t.rows) == 0 {
		fmt.Fprintln(w, t.empty)
		return
	}
	widths, cut := t.fit(int(l))
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		fmt.Fprintln(w, t.line(row, widths))
	}
	if cut {
		fmt.Fprintln(w, cutTo("(shortened; --wide shows all)", int(l), cutEnd))
	}
}

// line formats a row with columns of the given widths.
func (t table) line(row []string, widths []int) string {
	var q strings.Builder
	for i, text := range row {
		if widths[i] == 0 {
			continue
		}
		if i == 0 || t.columns[i].process {
			text = cutTo(text, widths[i], words.Middle)
		}
		text = cutTo(text, widths[i], cutEnd)
		q.WriteString(text + strings.Repeat(" ", widths[i]-cells(text)+gap))
	}
	return strings.TrimRight(q.String(), " ")
}

// different returns the number of different rows in columns of the given widths.
func (t table) different(widths []int) int {
	lines := map[string]bool{}
	for _, row := range t.rows {
		lines[t.line(row, widths)] = true
	}
	return len(lines)
}

const gap = 2

// fit returns the width of each column, which is 0 for a dropped column. It also reports whether a
// part of the table is missing.
func (t table) fit(limit int) (widths []int, cut bool) {
	whole := make([]int, len(t.columns))
	for i, c := range t.columns {
		if c.wide && limit > 0 {
			continue
		}
		whole[i] = cells(c.title)
		for _, row := range t.rows {
			whole[i] = max(whole[i], cells(row[i]))
		}
	}
	for i, c := range t.columns {
		informs := func(row []string) bool { return row[i] != c.blank && row[i] != "-" }
		if limit > 0 && total(whole) > limit && c.blank != "" && !slices.ContainsFunc(t.rows, informs) {
			whole[i] = 0
		}
	}
	if limit == 0 || total(whole) <= limit {
		return whole, false
	}
	rows := t.different(whole)
	for _, i := range t.dropOrder() {
		widths = slices.Clone(whole)
		if t.shrink(widths, limit) && t.different(widths) == rows {
			return widths, true
		}
		without := slices.Clone(whole)
		if without[i] = 0; i > 0 && t.different(without) == rows {
			whole = without
		}
	}
	return whole, true
}

// dropOrder returns the columns in the order in which they are dropped. The first column comes last.
func (t table) dropOrder() (order []int) {
	for i := len(t.columns) - 1; i >= 0; i-- {
		order = append(order, i)
	}
	rank := func(i int) int {
		return slices.Index([]bool{t.columns[i].spare, i > 0 && !t.columns[i].process, i > 0, true}, true)
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank(a) - rank(b) })
	return order
}

// shrink narrows the widest columns until a row fits, and reports whether the row fits.
func (t table) shrink(widths []int, limit int) bool {
	for total(widths) > limit {
		widest := -1
		for i, w := range widths {
			if least := t.columns[i].minWidth; least > 0 && w > least && (widest < 0 || w > widths[widest]) {
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

func total(widths []int) int {
	sum := -gap
	for _, w := range widths {
		if w > 0 {
			sum += w + gap
		}
	}
	return sum
}

// cells returns the number of terminal columns that a text needs.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case words.Combining(r):
		return 0
	case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cutTo cuts a text that needs more than limit columns of a terminal. The given function cuts a
// text to a number of runes.
func cutTo(text string, limit int, cut func(text string, runes int) string) string {
	short := text
	for n := limit; n > 1 && cells(short) > limit; n-- {
		short = cut(text, n)
	}
	return short
}

// cutEnd cuts the end of a text. Two dots mark the cut.
func cutEnd(text string, limit int) string {
	const mark = ".."
	runes := []rune(text)
	return string(runes[:max(0, min(len(runes), limit-len(mark)))]) + mark
}

// wrap writes a sentence in lines that fit the layout. It indents the second and later lines,
// except before a long word. A word that is longer than a line, such as a command for the shell,
// stays whole.
func wrap(w io.Writer, l layout, text, indent string) {
	line := ""
	for i, word := range strings.Split(text, " ") {
		longer := line + " " + word
		switch {
		case i == 0:
			longer = word
		case l > 0 && cells(longer) > int(l) && strings.TrimSpace(line) != "":
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			if longer = indent + word; cells(longer) > int(l) {
				longer = word
			}
		}
		line = longer
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
