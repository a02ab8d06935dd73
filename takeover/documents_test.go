package takeover_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/watch"
	"mongodlm/takeover"
)

// evidence returns the evidence of a contender on the holder in two raw documents. An empty argument
// means a missing document.
func evidence(lock, ping []byte) takeover.Evidence {
	if len(lock) == 0 {
		return takeover.Evidence{}
	}
	l, bad := catalog.ParseLock(lock)
	switch {
	case bad != nil:
		return takeover.Evidence{Malformed: bad.Error()}
	case !l.Held:
		return takeover.Evidence{Name: l.Name}
	case len(ping) == 0 || l.Process == "":
		ping = nil
	}
	e := watch.EvidenceOf(l.Holders()[0], catalog.PingStateOf(ping))
	e.Name = l.Name
	return e
}

func document(doc bson.D) []byte {
	raw, err := bson.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return raw
}

var session = bson.ObjectID{11: 1}

func lockWith(changes ...bson.E) []byte {
	return document(with(bson.D{
		{Key: "_id", Value: "balancer"}, {Key: "state", Value: int32(1)},
		{Key: "process", Value: process}, {Key: "ts", Value: session},
		{Key: "takeoverMS", Value: limit.Milliseconds()},
	}, changes))
}

func pingWith(changes ...bson.E) []byte {
	at := bson.NewDateTimeFromTime(noon)
	return document(with(bson.D{
		{Key: "_id", Value: process}, {Key: "ping", Value: at}, {Key: "local", Value: at},
		{Key: "seq", Value: int64(7)}, {Key: "takeoverMS", Value: limit.Milliseconds()},
		{Key: "pingMS", Value: interval.Milliseconds()},
	}, changes))
}

func with(doc bson.D, changes []bson.E) bson.D {
	for _, c := range changes {
		doc = slices.DeleteFunc(doc, func(e bson.E) bool { return e.Key == c.Key })
		if c.Value != nil {
			doc = append(doc, c)
		}
	}
	return doc
}

func field(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

const (
	unheld  = takeover.Free
	held    = takeover.Held
	watched = takeover.Watch
	taken   = takeover.Take
	skewed  = takeover.Skewed
	unread  = takeover.Malformed
)

const firstDate, lastDate = bson.DateTime(math.MinInt64), bson.DateTime(math.MaxInt64)

var (
	soon       = noon.Add(time.Minute)
	finalState = lockWith(field("state", int32(2)))
)

// documents contains malformed and extreme documents, each with two expected verdicts: one second
// after the first read, and after the longest takeover time that a document may record.
var documents = map[string]struct {
	lock, ping  []byte
	first, last takeover.Verdict
}{
	"good":                  {lockWith(), pingWith(), held, taken},
	"none":                  {nil, nil, unheld, unheld},
	"free":                  {lockWith(field("state", int32(0))), nil, unheld, unheld},
	"state missing":         {lockWith(field("state", nil)), nil, unread, unread},
	"state 2":               {finalState, pingWith(), held, taken},
	"process missing":       {lockWith(field("process", nil)), nil, watched, taken},
	"takeoverMS huge":       {lockWith(field("takeoverMS", int64(1e18))), pingWith(), held, taken},
	"damaged lock":          {[]byte("\xff\xff\xff\x7fabc"), nil, unread, unread},
	"F14 no ping":           {lockWith(), nil, watched, taken},
	"F15 ping missing":      {lockWith(), pingWith(field("ping", nil)), unread, unread},
	"F16 ping in a minute":  {lockWith(), pingWith(date("ping", soon)), skewed, taken},
	"A15 ping of year 1":    {lockWith(), pingWith(date("ping", time.Time{})), skewed, taken},
	"A15 ping of 1970":      {lockWith(), pingWith(date("ping", time.UnixMilli(0))), skewed, taken},
	"A15 ping of 9999":      {lockWith(), pingWith(date("ping", year(9999))), skewed, taken},
	"A15 ping of the last":  {lockWith(), pingWith(field("ping", lastDate)), skewed, taken},
	"A15 ping of the first": {lockWith(), pingWith(field("ping", firstDate)), skewed, taken},
	"F17 seq missing":       {lockWith(), pingWith(field("seq", nil)), held, taken},
	"F17 seq text":          {lockWith(), pingWith(field("seq", "7")), unread, unread},
	"local missing":         {lockWith(), pingWith(field("local", nil)), held, taken},
	"local of year 1":       {lockWith(), pingWith(date("local", time.Time{})), held, taken},
	"local of 9999":         {lockWith(), pingWith(date("local", year(9999))), skewed, taken},
	"pingMS huge":           {lockWith(), pingWith(field("pingMS", int64(1e18))), held, taken},
	"C4 condemned":          {lockWith(), pingWith(doom), taken, taken},
	"C4 no seq, a mark":     {lockWith(), pingWith(doom, field("seq", nil)), taken, taken},
	"foreign, marked":       {finalState, pingWith(doom, field("seq", nil)), held, taken},
	"foreign, no ping":      {finalState, nil, watched, taken},
	"a sight":               {lockWith(), pingWith(seenAt(noon)), held, taken},
	"an old sight":          {lockWith(), pingWith(seenAt(firstDate.Time())), held, taken},
	"a sight that is text":  {lockWith(), pingWith(field("sight", "yes")), held, taken},
	"F18 mark is text":      {lockWith(), pingWith(field("condemned", "yes")), held, taken},
}

func seenAt(at time.Time) bson.E {
	return field("sight", bson.D{{Key: "seq", Value: int64(7)}, {Key: "by", Value: "db9"},
		date("at", at), date("local", at)})
}

var doom = field("condemned", bson.D{{Key: "by", Value: "db9"}, {Key: "evidence", Value: "x"}})

func date(key string, at time.Time) bson.E { return field(key, bson.NewDateTimeFromTime(at)) }

func year(y int) time.Time { return time.Date(y, 12, 31, 23, 59, 59, 0, time.UTC) }

// read returns e with the clocks of a read at the given time after noon.
func read(e takeover.Evidence, at time.Duration) takeover.Evidence {
	clocks := look(at)
	e.Server, e.Primary, e.Wall = clocks.Server, clocks.Primary, clocks.Wall
	e.Sent, e.Received = clocks.Sent, clocks.Received
	return e
}

func TestDecide_Documents(t *testing.T) {
	t.Parallel()
	for name, c := range documents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := evidence(c.lock, c.ping)
			first := read(e, time.Second)
			if d := takeover.Decide(first, first, policy()); d.Verdict != c.first {
				t.Errorf("first read: want %v, got %+v", c.first, d)
			}
			last := read(e, time.Second+trip+catalog.MaxTakeover)
			if d := takeover.Decide(first, last, policy()); d.Verdict != c.last {
				t.Errorf("last read: want %v, got %+v", c.last, d)
			}
		})
	}
}
