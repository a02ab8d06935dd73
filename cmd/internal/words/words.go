// Package words formats locks for the commands and the web page. [Shown], [Named], [Label] and
// [Remedy] return text that is safe for a terminal: control and direction characters are written as
// escapes. [Short], [Caller], [Role] and [Middle] return foreign text unescaped.
package words

import (
	"cmp"
	"fmt"
	"regexp"
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

// DefaultTakeover is the assumed takeover time of a process that has not recorded its takeover
// time.
const DefaultTakeover = 15 * time.Minute

// DefaultPing is the assumed ping interval of a process that has not recorded its ping interval.
const DefaultPing = 30 * time.Second

// Shown replaces the unprintable characters of a string from another program, and cuts it to limit
// runes. It returns a dash for the empty string.
func Shown(s string, limit int) string {
	if s == "" {
		return "-"
	}
	return catalog.Printable(s, limit)
}

// Named returns the name of a lock in quotes, for a sentence. It escapes invisible characters. It
// cuts no valid name.
func Named(name string) string {
	const limit = 4096
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

// Label returns the name of a lock for a table. The name is in quotes only if it could be misread
// without them. Label cuts no valid name.
func Label(name string) string {
	quoted := Named(name)
	switch {
	case quoted != `"`+name+`"`, name == "", name == "-", strings.TrimSpace(name) != name,
		strings.Contains(name, "  "), Combining([]rune(name)[0]):
		return quoted
	}
	return name
}

// blank reports whether a character other than a space is printable but invisible.
func blank(r rune) bool {
	const emptyBraille = '\u2800'
	return r == emptyBraille || r != ' ' && unicode.IsSpace(r) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) // the fillers of Hangul
}

// Combining reports whether a character combines with the previous character.
func Combining(r rune) bool { return unicode.In(r, unicode.Mn, unicode.Me) }

// Short returns a process id without the start time and the random part. Two processes may have
// equal results.
func Short(process string) string {
	parts := strings.Split(process, ":")
	if len(parts) < 4 {
		return process
	}
	return strings.Join(parts[:len(parts)-2], ":")
}

// Age formats a duration with few digits. It returns a dash for a negative duration, which means
// unknown.
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

// Instant formats a time in RFC 3339, in UTC. It returns a dash for the zero time, which means
// unknown.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Milliseconds returns a duration for JSON. It returns nil for a negative duration, which means
// unknown.
func Milliseconds(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	return new(d.Milliseconds())
}

// Duration is the inverse of [Milliseconds]. It returns -1 for nil.
func Duration(ms *int64) time.Duration {
	if ms == nil {
		return -1
	}
	return time.Duration(*ms) * time.Millisecond
}

// Caller returns i.Who without the leading process id.
func Caller(i distlock.LockInfo) string { return strings.TrimPrefix(i.Who, i.Process+":") }

// Marks returns the marks of a holder or waiter, such as "silent" or "leader". The marks of trouble
// come first, because a table may cut the end. The result is empty for the last holder of a free
// lock.
func Marks(i distlock.LockInfo) []string {
	m := []string{}
	mark := func(is bool, word string) {
		if is {
			m = append(m, word)
		}
	}
	_, elected := election.CandidateOf(i)
	current, ranOut := i.Held || i.Place > 0, i.Lease > 0 && i.LeaseAge > i.Lease
	mark(current && i.BadPing != nil, "bad ping")
	mark(current && i.BadPing == nil && !i.HasPing, "no ping")
	mark(current && i.Condemned, "condemned")
	mark(current && Silent(i), "silent")
	mark(current && ranOut, "lease ran out")
	mark(elected && i.Held, "leader")
	mark(elected && !i.Held, "candidate")
	mark(current && i.HasPing && i.Foreign, "foreign")
	mark(current && i.Lease > 0 && !ranOut, fmt.Sprintf("lease of %v", i.Lease))
	return m
}

// Silent reports whether the last ping of a process is older than the takeover time of the process.
func Silent(i distlock.LockInfo) bool {
	return i.HasPing && i.PingAge > cmp.Or(i.Takeover, DefaultTakeover)
}

// Suspect reports whether a holder needs attention. A holder needs attention if it is silent, was
// declared dead, has no readable ping, or has an expired lease.
func Suspect(i distlock.LockInfo) bool {
	return i.Condemned || Silent(i) || !i.HasPing || i.Lease > 0 && i.LeaseAge > i.Lease
}

// LongQueue is the minimum number of waiters in a long queue.
const LongQueue = 10

// StandsBy reports whether a waiter waits only for the death of the holder. Examples are the
// candidates of an election, the followers of a loop or schedule, and the rescuers of a queue.
func StandsBy(i distlock.LockInfo) bool {
	switch Role(i) {
	case "election", "loop", "slots":
		return true
	}
	return strings.HasPrefix(i.Name, "claim:")
}

// Role returns the label of a holder or waiter. In LockInfo.Who, the label follows the process id.
func Role(i distlock.LockInfo) string {
	caller := Caller(i)
	if at := strings.LastIndexByte(caller, ':'); at >= 0 {
		return caller[:at]
	}
	return caller
}

// The name of a queue has colons only in quotes.
var ofQueue = regexp.MustCompile(`(?s)^claim:([^.]+\..+?):((?:"(?:[^"\\]|\\.)*"|[^:])+):[^:]*$`)

// Queue parses the name of a lock that a worker of a queue holds. Such a name has the format
// claim:DATABASE.COLLECTION:QUEUE:SLOT. The namespace is DATABASE.COLLECTION. Queue also reports
// whether the name has this format.
func Queue(lock string) (namespace, queue string, is bool) {
	if found := ofQueue.FindStringSubmatch(lock); found != nil {
		return found[1], found[2], true
	}
	return "", "", false
}

// DefaultField is the field with the claim of a row, if the name of the queue has no field.
const DefaultField = "claim"

// Field returns the field with the claim of a row. The given name is a name that [Queue] returns.
func Field(queue string) string {
	name, _ := strconv.QuotedPrefix(queue) // empty if the name has no quotes
	_, field, _ := strings.Cut(queue[len(name):], "/")
	if text, err := strconv.Unquote(field); err == nil {
		return text
	}
	return cmp.Or(field, DefaultField)
}

// Long reports whether a queue has at least [LongQueue] waiters. It does not count waiters for
// which [StandsBy] is true.
func Long(queue []distlock.LockInfo) bool {
	n := 0
	for _, w := range queue {
		if !StandsBy(w) {
			n++
		}
	}
	return n >= LongQueue
}

// Trouble ranks a lock by its need for attention. It returns 2 if [Suspect] is true for a holder, 1
// if [Long] is true for the queue, and 0 otherwise.
func Trouble(holders, queue []distlock.LockInfo) int {
	switch {
	case slices.ContainsFunc(holders, func(i distlock.LockInfo) bool { return i.Held && Suspect(i) }):
		return 2
	case Long(queue):
		return 1
	}
	return 0
}

// Middle shortens a text to limit runes. It omits the middle, because the names of pods differ at
// the end.
func Middle(s string, limit int) string {
	runes := []rune(s)
	if len(runes) <= limit {
		return s
	}
	head := (limit - 1) * 2 / 5
	return string(runes[:head]) + "…" + string(runes[len(runes)-(limit-1-head):])
}

// Mode formats the mode of a lock, with the number of permits if limit is positive. It returns a
// dash for an empty mode.
func Mode(mode string, limit int) string {
	if limit > 0 {
		return fmt.Sprintf("%s of %d", mode, limit)
	}
	return Shown(mode, 20)
}

// AfterBreak describes the result of [distlock.Inspector.Break].
func AfterBreak(now []distlock.LockInfo) string {
	switch {
	case len(now) == 0:
		return "That holder no longer holds the lock; other holders still hold it."
	case !now[0].Held:
		return fmt.Sprintf("The lock is free now, fence %d.", now[0].Fence)
	}
	return "The lock was granted to the next waiter."
}

// Remedy returns instructions for the repair of a malformed document.
func Remedy(e *distlock.MalformedError) string {
	switch {
	case e.Field == "_id", e.Collection == history.Collection:
		return "remove the document"
	case e.Collection == catalog.PingsCollection:
		return "stop the process, then remove its ping document"
	case strings.HasPrefix(e.Field, "waiters"):
		return "remove the field waiters; the waiters queue again"
	case strings.HasPrefix(e.Field, "sharers"):
		return "make sure that no program works under this lock, then set state to the int 0 and " +
			"remove the field sharers"
	case e.Field == "fence":
		return "set it to a long that is larger than every earlier fence"
	case e.Field == "rev":
		return "set it to the long 0; it only counts the writes"
	default:
		return "make sure that no program works under this lock, then set state to the int 0"
	}
}
