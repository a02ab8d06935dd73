package mongocatalog_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
)

// overload returns the reply of an overloaded server that refuses a command.
func overload(labels ...string) bson.D {
	return bson.D{e("ok", 0.0), e("code", int32(462)), e("codeName", "IngressRequestRateLimitExceeded"),
		e("errmsg", "rate limit exceeded"), e("errorLabels", labels)}
}

// Overloaded servers of MongoDB 8.2 and MongoDB 9.0 return these error labels.
var (
	of82 = []string{driver.ErrSystemOverloadedError, driver.ErrRetryableError}
	of90 = append(of82, driver.NoWritesPerformed)
)

// A client that Dial creates sends each write once, even if an overloaded server refuses the write.
// The error is ErrUnavailable, because the write was not applied.
func TestDial_Overloaded_EveryWriteIsSentOnce(t *testing.T) {
	t.Parallel()
	for name := range catalogtest.Writes(memcatalog.New(memcatalog.Options{}), request()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, writing(overload(of82...)))
			client := assert.Value(mongocatalog.Dial(options.Client(),
				"mongodb://"+s.listener.Addr().String()+"/?replicaSet=c&maxAdaptiveRetries=5", 0, ""))(t)
			t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
			c := assert.Value(mongocatalog.New(client, mongocatalog.Options{}))(t)
			err := catalogtest.Writes(c, request())[name](t.Context())
			assert.Is(t, err, catalog.ErrUnavailable)
			assert.Equal(t, writesIn(s), 1, "sent %d times, want %d")
		})
	}
}

func writesIn(s *fakeServer) (n int) {
	for _, command := range s.sent() {
		if command.Lookup("writeConcern").Type != 0 {
			n++
		}
	}
	return n
}

// If an application passes its own client to New, the client may repeat a write that an overloaded
// server refused. The write is applied at most once, and the store returns the error of the last
// try.
func TestCatalog_OverloadedWithForeignClient_IsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replies []bson.D // the last reply is repeated; nil breaks the connection
		sent    int
		want    string // empty for success
	}{
		"then carried out": {
			[]bson.D{overload(of82...), {e("ok", 1.0), e("value", held())}}, 2, ""},
		"then the reply is lost":   {[]bson.D{overload(of82...), nil}, 2, unknown},
		"again and again by 8.2":   {[]bson.D{overload(of82...)}, 3, unavailable},
		"again and again by 9.0":   {[]bson.D{overload(of90...)}, 3, unavailable},
		"with no promise":          {[]bson.D{overload(driver.ErrSystemOverloadedError)}, 1, unknown},
		"by 8.2, and then by 9.0":  {[]bson.D{overload(of82...), overload(of90...)}, 3, unavailable},
		"and there is no retrying": {[]bson.D{overload(of90[0], of90[2])}, 1, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			s := serve(t, func(bson.Raw) bson.D {
				return c.replies[min(int(n.Add(1)), len(c.replies))-1]
			})
			_, err := on(connected(t, s, 0)).Acquire(t.Context(), request())
			got := ""
			if err != nil {
				got = verdict(err)
			}
			if got != c.want {
				t.Errorf("want %q, got %q: %v", c.want, got, err)
			}
			assert.Equal(t, len(s.sent()), c.sent, "sent %d times, want %d")
		})
	}
}

// The application name of a client ends with its purpose, such as "heartbeat". If the name would
// become too long, the purpose is omitted.
func TestDial_AppName_SaysThePurpose(t *testing.T) {
	t.Parallel()
	long := "a name of 120 bytes " + string(make([]byte, 100))
	for _, c := range []struct{ given, purpose, want string }{
		{"", "", "mongodlm"},
		{"", "heartbeat", "mongodlm heartbeat"},
		{"orders", "heartbeat", "orders heartbeat"},
		{"orders", "", "orders"},
		{long, "heartbeat", long},
	} {
		var given *string
		if c.given != "" {
			given = &c.given
		}
		assert.Equal(t, mongocatalog.AppName(given, c.purpose), c.want, "got %q, want %q")
	}
}

// If an overloaded server refuses a command in a transaction, the error matches ErrUnavailable and
// wraps the error of the driver. The same applies if the server has too many open transactions.
func TestOutcome_OverloadedInTransaction_IsUnavailable(t *testing.T) {
	t.Parallel()
	for _, refusal := range []mongo.CommandError{{Code: 463, Message: "no", Labels: of90},
		{Name: "TooManyOpenTransactions", Message: "no"}} {
		err := mongocatalog.FailedInTransaction(refusal)
		assert.Is(t, err, catalog.ErrUnavailable)
		if !reaches(err, refusal) {
			t.Errorf("the driver's error cannot be reached from %v", err)
		}
	}
	if err := mongocatalog.FailedInTransaction(io.EOF); verdict(err) == unavailable {
		t.Errorf("a broken connection: %v", err)
	}
}
