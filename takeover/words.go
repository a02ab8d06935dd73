package takeover

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
)

// Longest foreign texts in a reason, in characters.
const (
	idLimit   = 200
	textLimit = 800
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case Free:
		return "free"
	case Held:
		return "held"
	case Watch:
		return "watch"
	case Take:
		return "take"
	case Skewed:
		return "skewed"
	case Malformed:
		return "malformed"
	default:
		return fmt.Sprintf("verdict %d", int(v))
	}
}

// printable escapes whatever would not show in a line of text and cuts to limit characters. Text
// that is printable already stays as it is.
func printable(s string, limit int) string {
	if len(s) <= limit && plain(s) {
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > limit {
			b.WriteString("...")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// plain reports whether a text is printable ASCII, as nearly all are.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// quoted is printable between quotation marks, which are escaped inside.
func quoted(s string) string {
	s = printable(s, idLimit)
	if strings.Contains(s, `"`) {
		s = strings.ReplaceAll(s, `"`, `\"`)
	}
	return `"` + s + `"`
}

// holder names the holder of e.
func holder(e Evidence) string {
	if e.Process == "" {
		return "a holder without a process id"
	}
	return quoted(e.Process)
}

// figure writes a duration for people: to the millisecond, and no number where it has saturated.
func figure(d time.Duration) string {
	switch d {
	case math.MaxInt64:
		return "more than 292 years"
	case math.MinInt64:
		return "less than -292 years"
	}
	if d > -time.Millisecond && d < time.Millisecond {
		return d.String()
	}
	return d.Round(time.Millisecond).String()
}

// instant writes a clock's reading in UTC.
func instant(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
