package claim

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Config selects the rows of a queue and how they are handled. Zero fields have their defaults. The
// events of a queue go to the Logger of its Manager.
type Config struct {
	// Queue names the queue among those of one collection. All its processes have the same Queue,
	// Filter, Due and Key. Default "queue".
	Queue string
	// Field is the field of this package in a document, without a dot. Default "claim".
	Field string
	// Filter selects the documents that are rows. It must not name Field. Default: all.
	Filter bson.D
	// Due is the field, dotted if it lies deeper, with the date at which a row is due, by the clock of
	// the collection's server; the earliest is first. A row with null or without the field never is.
	// Default: all rows are due, about by age.
	Due string
	// Key is the field, dotted if it lies deeper, whose value makes rows a chain. Default: no chains.
	Key string

	// Workers is how many handlers a process runs at a time, at most 1,000. Default 1.
	Workers int
	// MaxAttempts is how often a row is claimed until it is dead. Default 10.
	MaxAttempts int
	// Backoff is the pause before the first retry; it doubles with each, up to 16 h, give or take a
	// fifth. Default: 1 s, and five times as long with each: ten attempts take more than a day.
	Backoff time.Duration
	// Timeout ends a handler's context so long after the handler began; its error is a failure then.
	// A handler that ignores its context keeps its row and its worker, see OnStuck. Default: no
	// timeout.
	Timeout time.Duration
	// KeepDone removes the document of a row that has been done for so long. Default: it stays.
	KeepDone time.Duration

	// OnDead is called in the process that has recorded that a row is dead, at most once; [Admin.List]
	// has all of them. Hooks are called one at a time; Close waits for them.
	OnDead func(ctx context.Context, row Info)
	// OnStuck is called once for a handler that has not returned 30 s after its context ended.
	OnStuck func(ctx context.Context, row Info)

	growth     time.Duration // of the pause, with each retry
	poll, tend time.Duration
}

const defaultField = "claim"

// Bounds of a Config.
const (
	mostWorkers = 1000
	mostQueue   = 200
	mostTime    = 10 * 366 * 24 * time.Hour
	mostBackoff = 16 * time.Hour
)

// withDefaults replaces zero fields.
func (c Config) withDefaults() Config {
	c.Queue = cmp.Or(c.Queue, "queue")
	c.Field = cmp.Or(c.Field, defaultField)
	c.Workers = cmp.Or(c.Workers, 1)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	if c.growth == 0 {
		c.growth = 2
		if c.Backoff == 0 {
			c.growth = 5
		}
	}
	c.Backoff = cmp.Or(c.Backoff, time.Second)
	c.poll = cmp.Or(c.poll, time.Second)
	c.tend = cmp.Or(c.tend, 5*time.Second)
	return c
}

// name is the part of the names of its locks that names a queue: two fields of a collection are two
// queues. Names with a slash or a colon are quoted.
func (c Config) name() string {
	part := func(text string) string {
		if strings.ContainsAny(text, "/:") {
			return strconv.Quote(text)
		}
		return text
	}
	if c.Field == defaultField {
		return part(c.Queue)
	}
	return part(c.Queue) + "/" + part(c.Field)
}

// problems lists every contradiction of a Config with its defaults.
func (c Config) problems() (list []string) {
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	bad(len(c.Queue) > mostQueue || strings.ContainsRune(c.Queue, 0) || !utf8.ValidString(c.Queue),
		"Queue must be valid UTF-8 of at most %d bytes without NUL", mostQueue)
	bad(strings.ContainsAny(c.Field, ".$\x00") || c.Field == "_id",
		"Field %q must be the name of one field, without a dot or a dollar", c.Field)
	list = append(list, c.dueProblems()...)
	list = append(list, c.keyProblems()...)
	bad(c.Workers < 1 || c.Workers > mostWorkers, "Workers is %d, must be 1 to %d", c.Workers,
		mostWorkers)
	bad(c.MaxAttempts < 1, "MaxAttempts is %d, must be at least 1", c.MaxAttempts)
	for name, d := range map[string]time.Duration{"Backoff": c.Backoff, "Timeout": c.Timeout,
		"KeepDone": c.KeepDone} {
		bad(d < 0 || d > mostTime, "%s is %v, must be zero to ten years", name, d)
	}
	switch name := names(c.Filter, c.Field); name {
	case "":
	case "$where", "$jsonSchema":
		bad(true, "Filter has %s, which may name %q, the field of this package: "+
			"use other operators", name, c.Field)
	default:
		bad(true, "Filter names %q, which belongs to this package: leave it out, "+
			"only ready rows are claimed", name)
	}
	if _, err := bson.Marshal(c.Filter); err != nil && c.Filter != nil {
		list = append(list, fmt.Sprintf("Filter cannot be sent: %v", err))
	}
	slices.Sort(list)
	return list
}

// names returns the part of a filter that names the field of this package, or may name it.
func names(filter bson.D, field string) string {
	text, err := bson.MarshalExtJSON(filter, false, false)
	if err != nil || len(filter) == 0 {
		return "" // problems reports it
	}
	for _, part := range []string{"$where", "$jsonSchema", field, "$" + field} {
		if strings.Contains(string(text), `"`+part+`":`) ||
			strings.Contains(string(text), `"`+part+`.`) ||
			part == "$"+field && strings.Contains(string(text), `"`+part+`"`) {
			return part
		}
	}
	return ""
}

// structured reports whether documents decode into T.
func structured[T any]() bool {
	t := reflect.TypeFor[T]()
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t.Kind() == reflect.Slice ||
		t.Kind() == reflect.Interface
}

// dueProblems returns the problems of Config.Due.
func (c Config) dueProblems() (list []string) {
	if c.Due == "" {
		return nil
	}
	return c.pathProblems("Due", c.Due)
}

// keyProblems returns the problems of Config.Key.
func (c Config) keyProblems() (list []string) {
	if c.Key == "" {
		return nil
	}
	list = c.pathProblems("Key", c.Key)
	if c.Key == "_id" {
		list = append(list, "Key is _id: no two rows have the same one")
	}
	return list
}

// pathProblems returns the problems of the name of a field.
func (c Config) pathProblems(what, path string) (list []string) {
	parts := strings.Split(path, ".")
	wrong := func(part string) bool { return part == "" || part[0] == '$' }
	if slices.ContainsFunc(parts, wrong) || strings.ContainsRune(path, 0) || !utf8.ValidString(path) {
		list = append(list, fmt.Sprintf("%s %q must be the name of a field, dotted at most, "+
			"without a dollar", what, path))
	}
	if parts[0] == c.Field {
		list = append(list, fmt.Sprintf("%s names %q, which belongs to this package", what, path))
	}
	return list
}

// reason is the reason with which a process holds its slot. It names the parts of the configuration
// that other programs need to count the rows as the queue does.
func (c Config) reason() string {
	text := claiming
	if c.Due != "" {
		text += fmt.Sprintf(dueBy+"%q", c.Due)
	}
	if c.Key != "" {
		text += fmt.Sprintf(keyedBy+"%q", c.Key)
	}
	return text
}

const (
	claiming = "claims rows"
	dueBy    = ", due by "
	keyedBy  = ", in chains by "
)

// ConfigOf returns Due and Key of a queue from the reason with which its processes hold their
// slots, [distlock.LockInfo].Why, for [NewAdmin]. Zero for another text.
func ConfigOf(why string) (c Config) {
	rest, is := strings.CutPrefix(why, claiming)
	if !is {
		return c
	}
	read := func(what string) (name string) {
		if after, is := strings.CutPrefix(rest, what); is {
			if quoted, err := strconv.QuotedPrefix(after); err == nil {
				name, _ = strconv.Unquote(quoted)
				rest = after[len(quoted):]
			}
		}
		return name
	}
	c.Due = read(dueBy)
	c.Key = read(keyedBy)
	return c
}
