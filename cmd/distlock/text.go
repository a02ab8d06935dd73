package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

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

// writeJSON writes a value as JSON for programs. It escapes the characters that a terminal could
// interpret. The escapes do not change the values of strings.
func writeJSON(w io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, safe(string(text))+"\n")
	return err
}

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

// output writes a result as a text or as JSON, in a single call.
func output(out io.Writer, asJSON, wide bool, result interface{ print(io.Writer, layout) }) error {
	if asJSON {
		return writeJSON(out, result)
	}
	var b bytes.Buffer
	result.print(&b, layoutOf(out, wide))
	_, err := out.Write(b.Bytes())
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// holdersInWords describes the holders of a lock. The text contains no ages, so it is the same in
// two reads of an unchanged lock.
func holdersInWords(holders []distlock.LockInfo) string {
	first := holders[0]
	if !first.Held {
		return "no process holds it, and processes wait"
	}
	what := "held by "
	switch n := len(holders); {
	case first.Limit > 0:
		what = permits(holders) + " are taken, one by "
	case n > 1:
		what = fmt.Sprintf("held by %d who share it, one is ", n)
	}
	what += shown(short(first.Process), 100)
	if first.Why != "" {
		what += fmt.Sprintf(" (%s)", shown(first.Why, 100))
	}
	what += " since " + instant(first.Since)
	if m := marks(first); len(m) > 0 {
		what += ", " + strings.Join(m, ", ")
	}
	return what
}

func permits(holders []distlock.LockInfo) string {
	return fmt.Sprintf("%d of %d permits", len(holders), holders[0].Limit)
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

func (l *problemList) add(bad *distlock.MalformedError) {
	if bad == nil {
		return
	}
	p := problem{bad.Collection, bad.ID, bad.Field, bad.Problem, remedy(bad)}
	if !slices.Contains(*l, p) {
		*l = append(*l, p)
	}
}

// each calls the given function for each row. It collects the documents that cannot be parsed.
func each(rows iter.Seq2[distlock.LockInfo, error], malformed *problemList,
	add func(distlock.LockInfo)) error {
	for one, err := range rows {
		var bad *distlock.MalformedError
		switch {
		case errors.As(err, &bad):
			malformed.add(bad)
		case err != nil:
			return err
		default:
			add(one)
		}
	}
	return nil
}
