// Package words says in words what the commands show of locks: names, ages, marks. Foreign texts
// come out fit for a terminal and for a page: control and direction characters are written as
// escapes. A page escapes the result once more for HTML.
package words

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/election"
)

// DefaultTakeover is the takeover time of a holder that has recorded none.
const DefaultTakeover = 15 * time.Minute

// DefaultPing is the ping interval of a process that has recorded none.
const DefaultPing = 30 * time.Second

// Shown makes a foreign text fit to be shown, cut to limit runes; a dash when there is none.
func Shown(s string, limit int) string {
	if s == "" {
		return "-"
	}
	return catalog.Printable(s, limit)
}

// ShortName is how much of a name is shown where there is little room, in runes.
const ShortName = 200

// Named shows the name of a lock in a sentence: in quotes, with escapes for what cannot be seen.
func Named(name string) string { return NamedTo(name, ShortName) }

// NamedTo is Named with a limit of so many runes.
func NamedTo(name string, limit int) string {
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
func Label(name string) string { return LabelTo(name, ShortName) }

// LabelTo is Label with a limit of so many runes.
func LabelTo(name string, limit int) string {
	quoted := NamedTo(name, limit)
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

// Marks says what is peculiar about a holder or waiter, trouble first, since the end may be cut;
// nothing for the last holder of a lock that is free.
func Marks(i distlock.LockInfo) []string {
	m := []string{}
	mark := func(is bool, word string) {
		if is {
			m = append(m, word)
		}
	}
	_, elected := election.CandidateOf(i)
	stands, ranOut := i.Held || i.Place > 0, i.Lease > 0 && i.LeaseAge > i.Lease
	mark(stands && i.BadPing != nil, "bad ping")
	mark(stands && i.BadPing == nil && !i.HasPing, "no ping")
	mark(stands && i.Condemned, "condemned")
	mark(stands && Silent(i), "silent")
	mark(stands && ranOut, "lease ran out")
	mark(elected && i.Held, "leader")
	mark(elected && !i.Held, "candidate")
	mark(stands && i.HasPing && i.Foreign, "foreign")
	mark(stands && i.Lease > 0 && !ranOut, fmt.Sprintf("lease of %v", i.Lease))
	return m
}

// Silent reports whether a process has not pinged for its takeover time. A contender that declared
// it dead, or has not, changes nothing about that.
func Silent(i distlock.LockInfo) bool {
	return i.HasPing && i.PingAge > cmp.Or(i.Takeover, DefaultTakeover)
}

// NextIsGone is said before a break of a lock whose next in line is gone: who is next then.
func NextIsGone(line []distlock.LockInfo) string {
	at := slices.IndexFunc(line, func(i distlock.LockInfo) bool { return !i.Gone() })
	left := "nobody is left in line."
	switch {
	case len(line) == 0 || at == 0:
		return ""
	case at > 0:
		left = "the first that is left is " + Shown(Short(line[at].Process), ShortName) + "."
	}
	return "The next in line looks dead: a break leaves it out, and " + left
}

// Suspect reports whether a holder wants somebody to look: it is silent, was declared dead, has no
// ping that can be understood, or its lease has run out.
func Suspect(i distlock.LockInfo) bool {
	return i.Condemned || Silent(i) || !i.HasPing || i.Lease > 0 && i.LeaseAge > i.Lease
}

// LongLine is from how many waiters on a line is long.
const LongLine = 10

// StandsBy reports whether a waiter is there for the case that the holder dies, and waits for no
// turn: a candidate, a follower of a loop or schedule, a rescuer of a queue.
func StandsBy(i distlock.LockInfo) bool {
	switch Role(i) {
	case "election", "loop", "slots":
		return true
	}
	return strings.HasPrefix(i.Name, "claim:")
}

// Role is the label of who holds or waits: the part of the field who behind the process id.
func Role(i distlock.LockInfo) string {
	caller := Caller(i)
	if at := strings.LastIndexByte(caller, ':'); at >= 0 {
		return caller[:at]
	}
	return caller
}

// Trouble ranks a lock by how much it wants somebody to look: 2 with a holder that is [Suspect], 1
// with a line of [LongLine] who wait for their turn, 0 else.
func Trouble(holders, line []distlock.LockInfo) int {
	if slices.ContainsFunc(holders, func(i distlock.LockInfo) bool { return i.Held && Suspect(i) }) {
		return 2
	}
	n := 0
	for _, w := range line {
		if !StandsBy(w) {
			n++
		}
	}
	if n >= LongLine {
		return 1
	}
	return 0
}

// Middle cuts a text to so many runes by leaving out its middle: names of pods differ at their
// ends.
func Middle(s string, limit int) string {
	runes := []rune(s)
	if len(runes) <= limit {
		return s
	}
	head := (limit - 1) * 2 / 5
	return string(runes[:head]) + "…" + string(runes[len(runes)-(limit-1-head):])
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
	case e.Field == "_id", e.Collection == history.Collection:
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
