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

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Config says which rows a queue has and how they are worked on. Zero fields mean their defaults.
type Config struct {
	// Queue names the queue among those of one collection. All processes of a queue give the same
	// name, filter and order. At most 200 bytes; in the names of its locks one that has a slash or a
	// colon is quoted. Default "queue".
	Queue string
	// Filter says which documents are rows. It must not name the field of this package. Default: all.
	Filter bson.D
	// Sort says which rows come first: fields with 1 or -1. Default: about by age, rows that are tried
	// again among the others.
	Sort bson.D
	// Due is the field of a document, dotted where it lies deeper, that says when the row is due: it
	// is given when the clock of the collection's server has passed this date. The earliest come
	// first, then by Sort. A row without a date there is never due. Default: all are at once.
	Due string
	// Key is the field of a document, dotted where it lies deeper, whose value makes rows a chain: of
	// those that have the same one only one is worked on at a time, by Due and Sort or else by _id. A
	// row holds its key from its first claim until it is done or dead, also while it waits for a
	// retry; other keys go on. A row without the field is in no chain, and null is a value as any
	// other. One that has a list there is never given: Add and Insert refuse it, others are logged,
	// and told by distlock claims. Default: no chains.
	Key string
	// KeyLetsGo lets the next row of a chain go while one waits for a retry, or was given back.
	KeyLetsGo bool
	// Field is the field of this package in a document, without a dot. Queues of one collection with
	// two fields are two, whatever their names. Default "claim".
	Field string

	// Workers is how many handlers Run runs at a time. Default 1.
	Workers int
	// Batch is how many rows are claimed, and completed, by one round of commands; at most 1,000. Run
	// claims fewer where its workers would not finish so many in about a Poll. Default 1.
	Batch int
	// InFlight bounds the rows that the process has claimed at a time, those that wait for a worker
	// included; at most 10,000. Default Workers, and as far as that allows Batch more if it is above
	// 1.
	InFlight int

	// MaxAttempts is how often a row is begun until it is dead: it failed each time, or its process
	// died. The first death of a process does not count, so a row may be begun once more than that:
	// with 1 it is begun again, once, when its process has died. Default 10.
	MaxAttempts int
	// Backoff is the pause before the first retry; it doubles with each, up to BackoffMax, give or
	// take a fifth. Without Backoff it is 1 s and five times as long with each: ten attempts reach
	// over a day, and so over an outage. Default of BackoffMax: 16 h, or Backoff where that is longer.
	Backoff, BackoffMax time.Duration
	growth              time.Duration // of the pause, with each retry
	// Lease bounds how long a row is worked on without [Row.Renew]: for work that hangs although
	// its process lives. The handler's context ends when three quarters of it have passed since the
	// claim or the last renewal was sent, by the process's own clock; the row is given to another
	// when one process of the queue has watched its counter stand still for the whole of it. A row
	// that waits for a worker is given back at half of it; one that waited is renewed, one command,
	// before its handler begins. At least three times the Manager's CommandTimeout. Default: none.
	Lease time.Duration
	// Timeout ends a handler's context so long after the handler began, with a cause that matches
	// [ErrTimeout]. An error of the handler is a failure then; nil is done, however late. A handler
	// that does not mind its context goes on, and its row stays claimed; see Lease. Default: none.
	Timeout time.Duration
	// OnDead is told of a row that is dead, in the process that has recorded it and after that:
	// because it failed too often, was discarded or cancelled, or because its process died, or its
	// lease ended, at its last attempt. At most once a row: not when the process ends before, or
	// cannot learn that its command was carried out; what may not be missed is found by [List]. Its
	// calls come one after the other and hold up no row; a panic is logged. Close of the queue waits
	// for them, and ends ctx when its own ends. Costs one command more each Tend, and two more for
	// rows that died with their process.
	OnDead func(ctx context.Context, row Info)
	// DeleteDone removes the document of a row that is done. By default it stays, as "done".
	DeleteDone bool
	// KeepDone removes the document of a row that has been done for so long, by the server's clock:
	// one process of the queue does so, about each half minute, 20,000 rows at most. Rows that were
	// done before it knew when stay. It needs an index of its own. Default: they stay for ever.
	KeepDone time.Duration

	// Poll is the time between two looks at a queue that has no row ready, give or take a fifth.
	// Where there are change streams they tell the process of rows, which it asks for within a Poll
	// unless another has them by then; it looks ten times less often, and a hundred times after looks
	// that have found nothing that it was not told of. Such a row is one that a program has changed so
	// that it matches Filter. Default 1 s.
	Poll time.Duration
	// Tend is the time between two looks for retries that others have left, and for what lost replies
	// have left.
	// Default 5 s.
	Tend time.Duration

	// Logger gets the events. Default silent.
	Logger zerolog.Logger
}

const defaultField = "claim"

// Bounds of a Config.
const (
	mostBatch    = 1_000
	mostInFlight = 10_000
	mostQueue    = 200
	mostTime     = 10 * 366 * 24 * time.Hour
)

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.Queue = cmp.Or(c.Queue, "queue")
	c.Field = cmp.Or(c.Field, defaultField)
	c.Workers = cmp.Or(c.Workers, 1)
	c.Batch = cmp.Or(c.Batch, 1)
	if c.InFlight == 0 {
		c.InFlight = max(c.Workers, 1)
		if c.Batch > 1 {
			c.InFlight += c.Batch
		}
		c.InFlight = min(c.InFlight, mostInFlight)
	}
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	if c.growth == 0 {
		c.growth = 2
		if c.Backoff == 0 {
			c.growth = 5
		}
	}
	c.Backoff = cmp.Or(c.Backoff, time.Second)
	c.BackoffMax = cmp.Or(c.BackoffMax, max(16*time.Hour, c.Backoff))
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Tend = cmp.Or(c.Tend, 5*time.Second)
	return c
}

// name is what the locks of a queue are named after: two fields of a collection are two queues.
// What has a slash or a colon, which part a name, is quoted.
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
	workers, batch := c.Workers < 1 || c.Workers > mostInFlight, c.Batch < 1 || c.Batch > mostBatch
	bad(workers, "Workers is %d, must be 1 to %d", c.Workers, mostInFlight)
	bad(batch, "Batch is %d, must be 1 to %d", c.Batch, mostBatch)
	few := !workers && !batch && c.InFlight < max(c.Workers, c.Batch)
	bad(few || c.InFlight < 1 || c.InFlight > mostInFlight,
		"InFlight is %d, must be at least Workers (%d) and Batch (%d), and at most %d", c.InFlight,
		c.Workers, c.Batch, mostInFlight)
	bad(c.MaxAttempts < 1, "MaxAttempts is %d, must be at least 1", c.MaxAttempts)
	bad(c.Backoff < 0 || c.BackoffMax < c.Backoff, "Backoff is %v and BackoffMax %v: neither may be "+
		"negative, nor BackoffMax the smaller one", c.Backoff, c.BackoffMax)
	bad(c.Lease < 0, "Lease is %v, must not be negative", c.Lease)
	bad(c.KeepDone < 0, "KeepDone is %v, must not be negative", c.KeepDone)
	bad(c.KeepDone > 0 && c.DeleteDone, "KeepDone is %v although DeleteDone keeps none", c.KeepDone)
	bad(c.Timeout < 0, "Timeout is %v, must not be negative", c.Timeout)
	bad(c.Poll < time.Millisecond, "Poll is %v, must be at least 1 ms", c.Poll)
	bad(c.Tend < time.Millisecond, "Tend is %v, must be at least 1 ms", c.Tend)
	for i, d := range []time.Duration{c.BackoffMax, c.Lease, c.Timeout, c.KeepDone, c.Poll, c.Tend} {
		name := []string{"BackoffMax", "Lease", "Timeout", "KeepDone", "Poll", "Tend"}[i]
		bad(d > mostTime, "%s is %v, must be at most ten years", name, d)
	}
	switch name := names(c.Filter, c.Field); name {
	case "":
	case "$where", "$jsonSchema":
		bad(true, "Filter has %s, which may name %q, the field of this package: "+
			"say it by other operators", name, c.Field)
	default:
		bad(true, "Filter names %q, which belongs to this package: leave it out, "+
			"only rows that are ready are claimed", name)
	}
	for i, key := range c.Sort {
		list = append(list, c.pathProblems("Sort", key.Key)...)
		_, text := key.Value.(string)
		known := !text && slices.Contains([]string{"1", "-1"}, fmt.Sprint(key.Value))
		bad(!known, "Sort of %q is %#v, must be 1 or -1", key.Key, key.Value)
		bad(slices.ContainsFunc(c.Sort[:i], func(one bson.E) bool { return one.Key == key.Key }),
			"Sort names %q twice", key.Key)
	}
	if _, err := bson.Marshal(c.Filter); err != nil && c.Filter != nil {
		list = append(list, fmt.Sprintf("Filter cannot be sent: %v", err))
	}
	return list
}

// names returns what in a filter names the field of this package, or may: a key, a text.
func names(filter bson.D, field string) string {
	raw, err := bson.Marshal(filter)
	if err != nil || len(filter) == 0 {
		return "" // problems tells
	}
	return namesIn(raw, field)
}

func namesIn(filter bson.Raw, field string) string {
	elements, _ := filter.Elements()
	for _, one := range elements {
		switch key := one.Key(); key {
		case "$where", "$jsonSchema":
			return key
		case "$expr":
			said := one.Value().String()
			for _, name := range []string{"$" + field, "." + field} {
				if strings.Contains(said, name+`"`) || strings.Contains(said, name+".") {
					return "$" + field
				}
			}
		case "$and", "$or", "$nor":
			parts, _ := one.Value().ArrayOK()
			values, _ := parts.Values()
			for _, part := range values {
				if in, ok := part.DocumentOK(); ok {
					if found := namesIn(in, field); found != "" {
						return found
					}
				}
			}
		default:
			if key == field || strings.HasPrefix(key, field+".") {
				return key
			}
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

// dueProblems says what is wrong with Config.Due.
func (c Config) dueProblems() (list []string) {
	if c.Due == "" {
		return nil
	}
	list = c.pathProblems("Due", c.Due)
	if slices.ContainsFunc(c.Sort, func(key bson.E) bool { return key.Key == c.Due }) {
		list = append(list, fmt.Sprintf("Sort names %q, by which Due sorts already: leave it out", c.Due))
	}
	return list
}

// pathProblems says what is wrong with the name of a field of the user's.
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

// reason is why a process holds a slot, as the lock tells it. It says what of the configuration
// others need to count the rows as the queue does.
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

// ConfigOf reads Due and Key of a queue from the reason that its processes give for the locks which
// are their slots, [distlock.LockInfo].Why: with these others count its rows as it does, see
// [Count] and [Odd]. Zero for another text.
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
