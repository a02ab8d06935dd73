package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"mongodlm/cmd/internal/words"
)

// These functions also format texts for the page.
var (
	shown     = words.Shown
	named     = words.Named
	label     = words.Label
	short     = words.Short
	age       = words.Age
	instant   = words.Instant
	combining = words.Combining
	caller    = words.Caller
	marks     = words.Marks
	modeOf    = words.Mode
	remedy    = words.Remedy
)

// writeJSON writes a value as JSON for programs. If a terminal could interpret a character of a
// string, writeJSON writes the \u escape, which has the same value.
func writeJSON(w io.Writer, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, safe(b.String()))
	return err
}

// safe writes each character of a JSON text that a terminal could interpret as its \u escape.
func safe(text string) string {
	var safe strings.Builder
	for _, r := range text {
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
	return safe.String()
}

// printed writes the output of print in one call. It returns the error of that write.
func printed(out io.Writer, print func(io.Writer)) error {
	var b bytes.Buffer
	print(&b)
	_, err := out.Write(b.Bytes())
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
