package words_test

import (
	"testing"

	"mongodlm/cmd/internal/words"
)

// Collections and queues may have colons and quotes in their names. The names of their locks still
// name the collection, the queue and its field, because a queue with a colon or a slash is quoted.
func TestQueue_AnyName_IsParsed(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string][2]string{
		"claim:db.mails:queue:0":          {"db.mails", "queue"},
		"claim:db.mails:queue:rescue":     {"db.mails", "queue"},
		"claim:db.new.mails:queue/f:0":    {"db.new.mails", "queue/f"},
		"claim:db.new:mails:queue:0":      {"db.new:mails", "queue"},
		"claim:d:b.new:mails:a:0":         {"d:b.new:mails", "a"},
		`claim:db.mails:"a:b":0`:          {"db.mails", `"a:b"`},
		`claim:db.mails:"a:b"/"c:\"d":0`:  {"db.mails", `"a:b"/"c:\"d"`},
		`claim:db.new:mails:c/"a:b":0`:    {"db.new:mails", `c/"a:b"`},
		`claim:db.mails:say"hi:0`:         {"db.mails", `say"hi`},
		"claim:db.mails:two\nparts:0":     {"db.mails", "two\nparts"},
		"claim:odd:x:1":                   {},
		"claim:db.mails:0":                {},
		"claim:db.:queue:0":               {},
		"a claim:db.mails:queue:0":        {},
		"election:claim:db.mails:queue:0": {},
	} {
		namespace, queue, is := words.Queue(lock)
		got := [2]string{namespace, queue}
		if got != want || is != (want != [2]string{}) {
			t.Errorf("%q is parsed as %q, %v, want %q", lock, got, is, want)
		}
	}
	for queue, want := range map[string]string{"queue": "claim", "queue/f": "f", `"a:b"`: "claim",
		`"a/b"`: "claim", `"a/b"/c`: "c", `c/"a:b/d"`: "a:b/d", `say"hi/f`: "f"} {
		if got := words.Field(queue); got != want {
			t.Errorf("the field of %s is %q, want %q", queue, got, want)
		}
	}
}
