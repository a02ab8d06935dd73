// Package words says in words what the commands show of locks: names, ages, marks. Foreign texts
// come out fit for a terminal and for a page: control and direction characters are written as
// escapes. A page escapes the result once more for HTML.
package words

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/election"
)

// DefaultTakeover is the takeover time of a holder that has recorded none.
const DefaultTakeover = 15 * time.Minute

// Shown makes a foreign text fit to be shown, cut to limit runes; a dash when there is none.
func Shown(s string, limit int) string {
	if s == "" {
		return "-"
	}
	return catalog.Printable(s, limit)
}

// Named shows the name of a lock in a sentence: in quotes, with escapes for what cannot be seen.
func Named(name string) string {
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

// Label shows the name of a lock in a table: as it is, or in quotes where a person would not see
// what it is.
func Label(name string) string {
	quoted := Named(name)
	switch {
	case quoted != `"`+name+`"`, name == "", name == "-", strings.TrimSpace(name) != name,
		strings.Contains(name, "  "), Combining([]rune(name)[0]):
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

// Combining reports whether a character is shown on the one before it.
func Combining(r rune) bool { return unicode.In(r, unicode.Mn, unicode.Me) }

// Short is a process id without the time of its start and its random part: host and number. Two
// processes may look alike then.
func Short(process string) string {
	parts := strings.Split(process, ":")
	if len(parts) < 4 {
		return process
	}
	return strings.Join(parts[:len(parts)-2], ":")
}

// Age writes a duration in as many figures as a person reads; a dash when it is unknown, that is
// negative.
func Age(d time.Duration) string {
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

// Instant writes a time of the server's clock; a dash when it is unknown.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Caller is what the field who says beside the process: the caller inside it.
func Caller(i distlock.LockInfo) string { return strings.TrimPrefix(i.Who, i.Process+":") }

// Marks says what is peculiar about a holder or waiter; nothing for the last holder of a lock that
// is free.
func Marks(i distlock.LockInfo) []string {
	m := []string{}
	switch _, elected := election.CandidateOf(i); {
	case elected && i.Held:
		m = append(m, "leader")
	case elected:
		m = append(m, "candidate")
	}
	switch {
	case !i.Held && i.Place == 0:
		return m
	case i.BadPing != nil:
		return append(m, "bad ping")
	case !i.HasPing:
		return append(m, "no ping")
	}
	if i.Foreign {
		m = append(m, "foreign")
	}
	if i.Condemned {
		m = append(m, "condemned")
	}
	if i.PingAge > cmp.Or(i.Takeover, DefaultTakeover) {
		m = append(m, "silent")
	}
	switch {
	case i.Lease == 0:
	case i.LeaseAge > i.Lease:
		m = append(m, "lease ran out")
	default:
		m = append(m, fmt.Sprintf("lease of %v", i.Lease))
	}
	return m
}

// Mode words a mode with its limit; a dash when there is none.
func Mode(mode string, limit int) string {
	if limit > 0 {
		return fmt.Sprintf("%s of %d", mode, limit)
	}
	return Shown(mode, 20)
}

// Remedy says what an operator can do about a malformed document.
func Remedy(e *distlock.MalformedError) string {
	switch {
	case e.Field == "_id", e.Collection == catalog.HistoryCollection:
		return "remove the document"
	case e.Collection == catalog.PingsCollection:
		return "stop the process, then remove its ping document"
	case strings.HasPrefix(e.Field, "waiters"):
		return "remove the field waiters; those who wait enter the line again"
	case strings.HasPrefix(e.Field, "sharers"):
		return "make sure that nobody works under this lock, then set state to the int 0 and remove " +
			"the field sharers"
	case e.Field == "fence":
		return "set it to a long that is larger than every fence handed out before"
	case e.Field == "rev":
		return "set it to the long 0; it only counts the writes"
	default:
		return "make sure that nobody works under this lock, then set state to the int 0"
	}
}
