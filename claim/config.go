package claim

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Config says which rows a queue has and how they are worked on. Zero fields mean their defaults.
type Config struct {
	// Queue names the queue among those of one collection. All processes of a queue give the same
	// name, filter and order. At most 200 bytes. Default "queue".
	Queue string
	// Filter says which documents are rows. It must not name the field of this package. Default: all.
	Filter bson.D
	// Sort says which rows come first: fields with 1 or -1. Default: about by age, rows that are tried
	// again among the others.
	Sort bson.D
	// Field is the field of this package in a document, without a dot. Default "claim".
	Field string

	// Workers is how many handlers Run runs at a time. Default 1.
	Workers int
	// Batch is how many rows are claimed, and completed, by one round of commands; at most 1,000. Run
	// claims fewer where its workers would not finish so many in about a Poll. Default 1.
	Batch int
	// InFlight bounds the rows that the process has claimed at a time, those that wait for a worker
	// included; at most 10,000. Default Workers, and Batch more when Batch is larger than 1.
	InFlight int

	// MaxAttempts is how often a row is begun until it is dead: it failed each time, or its process
	// died. Default 10.
	MaxAttempts int
	// Backoff is the pause before the first retry; it doubles with each, up to BackoffMax, give or
	// take a fifth. Without Backoff it is 1 s and five times as long with each: ten attempts reach over
	// a day, and so over an outage. Default of BackoffMax: 16 h, or Backoff where that is longer.
	Backoff, BackoffMax time.Duration
	growth              time.Duration // of the pause, with each retry
	// Lease bounds how long a row is worked on without [Row.Renew]: for work that hangs although
	// its process lives. The handler's context ends when three quarters of it have passed since the
	// claim or the last renewal was sent, by the process's own clock; the row is given to another
	// when one process of the queue has watched its counter stand still for the whole of it. A row
	// that waits for a worker is given back at half of it; one that waited is renewed, one command,
	// before its handler begins. At least three times the Manager's CommandTimeout. Default: none.
	Lease time.Duration
	// DeleteDone removes the document of a row that is done. By default it stays, with the state
	// "done".
	DeleteDone bool

	// Poll is the time between two looks at a queue that has no row ready, give or take a fifth.
	// Where there are change streams one of them wakes the process, and it looks ten times less
	// often. Default 1 s.
	Poll time.Duration
	// Tend is the time between two looks for rows that are due, and for what lost replies have left.
	// Default 5 s.
	Tend time.Duration

	// Logger gets the events. Default silent.
	Logger zerolog.Logger
}

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
	c.Field = cmp.Or(c.Field, "claim")
	c.Workers = cmp.Or(c.Workers, 1)
	c.Batch = cmp.Or(c.Batch, 1)
	if c.InFlight == 0 {
		c.InFlight = c.Workers
		if c.Batch > 1 {
			c.InFlight += c.Batch
		}
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
	bad(c.Workers < 1, "Workers is %d, must be at least 1", c.Workers)
	bad(c.Batch < 1 || c.Batch > mostBatch, "Batch is %d, must be 1 to %d", c.Batch, mostBatch)
	bad(c.InFlight < c.Workers || c.InFlight < c.Batch || c.InFlight > mostInFlight,
		"InFlight is %d, must be at least Workers (%d) and Batch (%d), and at most %d", c.InFlight, c.Workers,
		c.Batch, mostInFlight)
	bad(c.MaxAttempts < 1, "MaxAttempts is %d, must be at least 1", c.MaxAttempts)
	bad(c.Backoff < 0 || c.BackoffMax < c.Backoff, "Backoff is %v and BackoffMax %v: neither may be negative, "+
		"nor BackoffMax the smaller one", c.Backoff, c.BackoffMax)
	bad(c.Lease < 0, "Lease is %v, must not be negative", c.Lease)
	bad(c.Poll < time.Millisecond, "Poll is %v, must be at least 1 ms", c.Poll)
	bad(c.Tend < time.Millisecond, "Tend is %v, must be at least 1 ms", c.Tend)
	for _, one := range []struct {
		name string
		time.Duration
	}{{"BackoffMax", c.BackoffMax}, {"Lease", c.Lease}, {"Poll", c.Poll}, {"Tend", c.Tend}} {
		bad(one.Duration > mostTime, "%s is %v, must be at most ten years", one.name, one.Duration)
	}
	if name := names(c.Filter, c.Field); name != "" {
		list = append(list, fmt.Sprintf("Filter names %q, which belongs to this package: leave it out, only rows "+
			"that are ready are claimed", name))
	}
	for _, key := range c.Sort {
		bad(key.Key == c.Field || strings.HasPrefix(key.Key, c.Field+"."),
			"Sort names %q, which belongs to this package", key.Key)
		bad(!slices.Contains([]string{"1", "-1"}, fmt.Sprint(key.Value)), "Sort of %q is %v, must be 1 or -1",
			key.Key, key.Value)
	}
	if _, err := bson.Marshal(c.Filter); err != nil && c.Filter != nil {
		list = append(list, fmt.Sprintf("Filter cannot be sent: %v", err))
	}
	return list
}

// names returns what in a filter names the field of this package, or may: a key, or a text in an
// expression.
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
			if said := one.Value().String(); strings.Contains(said, "$"+field) ||
				strings.Contains(said, "."+field) {
				return "$" + field
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
