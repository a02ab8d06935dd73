package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"mongodlm/catalog"
)

// shown makes a foreign text fit for a terminal, cut to limit runes; a dash when there is none.
func shown(s string, limit int) string {
	if s == "" {
		return "-"
	}
	return catalog.Printable(s, limit)
}

// named shows the name of a lock in a sentence: in quotes, with escapes for what cannot be seen.
func named(name string) string {
	const limit = 200
	if runes := []rune(name); len(runes) > limit {
		name = string(runes[:limit]) + "..."
	}
	var b strings.Builder
	for _, r := range strconv.Quote(name) {
		if blank(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// label shows the name of a lock in a table: as it is, or in quotes where a person would not see
// what it is.
func label(name string) string {
	quoted := named(name)
	switch {
	case quoted != `"`+name+`"`, name == "-", strings.TrimSpace(name) != name,
		strings.Contains(name, "  "), combining([]rune(name)[0]):
		return quoted
	}
	return name
}

// blank reports whether a character counts as printable and shows nothing.
func blank(r rune) bool {
	const emptyBraille = '\u2800'
	return r == emptyBraille || r != ' ' && unicode.IsSpace(r) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) // the fillers of Hangul
}

// combining reports whether a character is shown on the one before it.
func combining(r rune) bool { return unicode.In(r, unicode.Mn, unicode.Me) }

// short is a process id without the time of its start and its random part: host and number. Two
// processes may look alike then.
func short(process string) string {
	parts := strings.Split(process, ":")
	if len(parts) < 4 {
		return process
	}
	return strings.Join(parts[:len(parts)-2], ":")
}

// badText says what is wrong with a text that is to be stored; empty when nothing is.
func badText(s string, limit int) string {
	switch {
	case len(s) > limit:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "contains a NUL byte"
	}
	return ""
}

// age writes a duration in as many figures as a person reads; a dash when it is unknown, that is
// negative.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < day:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	d = d.Round(time.Hour)
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// instant writes a time of the server's clock; a dash when it is unknown.
func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// writeJSON writes a value for programs. Texts keep their value; what a terminal could obey is
// written as \u escapes.
func writeJSON(w io.Writer, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return err
	}
	var safe strings.Builder
	for _, r := range b.String() {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			safe.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
	}
	_, err := io.WriteString(w, safe.String())
	return err
}

// yesNo writes a fact.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
