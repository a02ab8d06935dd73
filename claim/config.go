package claim

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Config selects the rows of a queue and configures their handling. A zero field has its default. A
// queue logs to the Logger of its Manager.
type Config struct {
	// Queue is the name of the queue in its collection. All processes of a queue must have the same
	// Queue, Field, Filter, Due and Key. Default "queue".
	Queue string
	// Field is the name of the field with the state of a row, without a dot. Default "claim".
	Field string
	// Filter selects the rows. It must not use Field, $where or $jsonSchema. Default: all documents.
	Filter bson.D
	// Due is the name of the field with the due time of a row, which may be dotted. A row is due when
	// the clock of the collection's server has reached this time, and never if the field is null or
	// absent. The earliest row is claimed first. Default: all rows are due, roughly the oldest first.
	Due string
	// Key is the name of the field with the key of a chain, which may be dotted. Default: no chains.
	Key string
	// Workers is the number of handlers that a process runs at a time, at most 1,000. Default 1.
	Workers int
	// MaxAttempts is the number of failed attempts after which a row becomes dead. Default 10.
	MaxAttempts int
	// Backoff is the pause before the first retry. Each further retry doubles the pause, up to 16 h
	// or Backoff, whichever is longer. Each pause varies at random by up to a fifth. Default: 1 s,
	// then each retry multiplies the pause by five, so that ten attempts take more than a day.
	Backoff time.Duration
	// Timeout is the time after which a handler's context ends, with a cause that matches ErrTimeout.
	// A handler that does not return keeps its row and worker, see OnStuck. Default: no timeout.
	Timeout time.Duration
	// KeepDone is the time after which the document of a done row is removed. Default: never.
	KeepDone time.Duration
	// OnDead is called after this process has made a row dead, at most once for each death, and not
	// if the process dies first, see [Admin.List]. Calls of OnDead and OnStuck do not overlap.
	OnDead func(ctx context.Context, row Info)
	// OnStuck is called once for a handler that has not returned 30 s after its context ended.
	OnStuck func(ctx context.Context, row Info)

	growth time.Duration // the factor of the pause between two retries
}

const defaultField = "claim"

const (
	mostWorkers = 1000
	mostQueue   = 200
	mostTime    = 10 * 366 * 24 * time.Hour
	mostBackoff = 16 * time.Hour
)

func (c Config) withDefaults() Config {
	c.Queue = cmp.Or(c.Queue, "queue")
	c.Field = cmp.Or(c.Field, defaultField)
	c.Workers = cmp.Or(c.Workers, 1)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	if c.growth == 0 && c.Backoff == 0 {
		c.growth = 5
	}
	c.growth = cmp.Or(c.growth, 2)
	c.Backoff = cmp.Or(c.Backoff, time.Second)
	return c
}

// name returns the part of the lock names that identifies the queue. It is Queue, or Queue/Field if
// Field differs from the default. If Queue or Field contains a slash or a colon, that text is
// quoted, so that different queues have different names.
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

// problems describes the wrong fields of c, whose defaults must be set.
func (c Config) problems() (list problems) {
	bad := list.add
	bad(len(c.Queue) > mostQueue || strings.ContainsRune(c.Queue, 0) || !utf8.ValidString(c.Queue),
		"Queue must be valid UTF-8 of at most %d bytes without NUL", mostQueue)
	bad(strings.ContainsAny(c.Field, ".$\x00") || c.Field == "_id",
		"Field %q must be the name of one field, without a dot or a dollar", c.Field)
	wrong := func(part string) bool { return part == "" || part[0] == '$' }
	for what, path := range map[string]string{"Due": c.Due, "Key": c.Key} {
		parts := strings.Split(path, ".")
		bad(path != "" && slices.ContainsFunc(parts, wrong) || strings.ContainsRune(path, 0) ||
			!utf8.ValidString(path), "%s %q must be the name of a field, optionally "+
			"dotted, without a dollar", what, path)
		bad(parts[0] == c.Field, "%s names %q, which belongs to this package", what, path)
	}
	bad(c.Key == "_id", "Key is _id, which no two rows share")
	bad(c.Workers < 1 || c.Workers > mostWorkers, "Workers is %d, must be 1 to %d", c.Workers,
		mostWorkers)
	bad(c.MaxAttempts < 1, "MaxAttempts is %d, must be at least 1", c.MaxAttempts)
	for name, d := range map[string]time.Duration{"Backoff": c.Backoff, "Timeout": c.Timeout,
		"KeepDone": c.KeepDone} {
		bad(d < 0 || d > mostTime, "%s is %v, must be zero to ten years", name, d)
	}
	name := names(c.Filter, c.Field)
	bad(name != "", "Filter has %s: it must not use %q, the field of this package, $where or "+
		"$jsonSchema", name, c.Field)
	_, err := bson.Marshal(c.Filter)
	bad(err != nil && c.Filter != nil, "Filter cannot be sent: %v", err)
	slices.Sort(list)
	return list
}

// names searches filter for a forbidden name. It returns the name, or an empty string if there is
// none. The forbidden names are the given field, the field with a leading dollar, and the operators
// $where and $jsonSchema, which could read the field.
func names(filter bson.D, field string) string {
	text, err := bson.MarshalExtJSON(filter, false, false)
	if err != nil {
		return "" // problems reports it
	}
	for _, part := range []string{"$where", "$jsonSchema", field, "$" + field} {
		for _, end := range []string{`":`, `.`, `"`} {
			if strings.Contains(string(text), `"`+part+end) && (end != `"` || part == "$"+field) {
				return part
			}
		}
	}
	return ""
}

// reason returns the text that the lock document of a slot stores as the reason for the lock.
// ConfigOf parses Due and Key from this text.
func (c Config) reason() string {
	text := "claims rows"
	if c.Due != "" {
		text += fmt.Sprintf(", due by %q", c.Due)
	}
	if c.Key != "" {
		text += fmt.Sprintf(", in chains by %q", c.Key)
	}
	return text
}

var reasons = regexp.MustCompile(`^claims rows(?:, due by ("(?:[^"\\]|\\.)*"))?` +
	`(?:, in chains by ("(?:[^"\\]|\\.)*"))?`)

// ConfigOf parses the Due and the Key of a queue from the field Why of a slot's lock, see
// [distlock.LockInfo]. If it cannot, the Config is zero.
func ConfigOf(why string) (c Config) {
	if found := reasons.FindStringSubmatch(why); found != nil {
		c.Due, _ = strconv.Unquote(found[1])
		c.Key, _ = strconv.Unquote(found[2])
	}
	return c
}
