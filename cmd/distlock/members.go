package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/cmd/internal/words"
	"mongodlm/internal/clock"
)

// A member is a [ui.Member] in the report.
type member struct {
	Host  string `json:"host"`
	State string `json:"state"` // primary, secondary, arbiter or other; empty without an answer
	// AheadMS is the offset of the member's clock from this machine's clock, corrected by half the
	// round trip. AheadMS and RoundTripMS are null if the member did not answer.
	AheadMS     *int64 `json:"aheadMS"`
	RoundTripMS *int64 `json:"roundTripMS"`
	Problem     string `json:"problem"` // the error of the commands to the member
}

func memberOf(m ui.Member) member {
	if m.Problem != "" {
		return member{Host: m.Host, Problem: m.Problem}
	}
	return member{Host: m.Host, State: m.Kind, AheadMS: new(m.Ahead.Milliseconds()),
		RoundTripMS: milliseconds(m.RoundTrip)}
}

func (m member) String() string {
	if m.Problem != "" {
		return fmt.Sprintf("%s does not answer: %s", shown(m.Host, 100), shown(m.Problem, 200))
	}
	return fmt.Sprintf("%s, %s, clock %s, round trip %d ms", shown(m.Host, 100), m.State,
		signed(duration(m.AheadMS)), *m.RoundTripMS)
}

const memberLimit = 5 * time.Second

// members reads the clock of each member of a replica set, and checks the write concern.
func (x *examination) members(ctx context.Context) (err error) {
	if x.Kind != string(catalog.ReplicaSet) {
		return nil
	}
	all, err := x.readMembers(ctx, x.st)
	if err != nil || len(all) == 0 {
		return err
	}
	for _, m := range all {
		x.Members = append(x.Members, memberOf(m))
	}
	x.warnOfMembers()
	return x.writeConcern(ctx)
}

// readMembers reads the clock of each member of a replica set. For other deployments the result is
// empty.
func (c *connection) readMembers(ctx context.Context, st *store) ([]ui.Member, error) {
	var hello struct{ Hosts, Passives, Arbiters []string }
	err := st.primary("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&hello)
	if err != nil {
		return nil, fmt.Errorf("read the members of the replica set: %w", err)
	}
	hosts := slices.Concat(hello.Hosts, hello.Passives, hello.Arbiters)
	all := make([]ui.Member, len(hosts))
	var wg sync.WaitGroup
	for i, host := range hosts {
		wg.Go(func() {
			all[i] = ui.Member{Host: host}
			if err := c.readMember(ctx, &all[i]); err != nil {
				all[i].Problem = catalog.RedactUserInfo(err.Error())
			}
		})
	}
	wg.Wait()
	return all, nil
}

func (c *connection) readMember(ctx context.Context, m *ui.Member) error {
	ctx, cancel := context.WithTimeout(ctx, memberLimit)
	defer cancel()
	opts := options.Client().ApplyURI(c.uri).SetHosts([]string{m.Host}).SetDirect(true).
		SetServerSelectionTimeout(memberLimit)
	client, err := mongocatalog.Dial(opts, "", 1, "")
	if err != nil {
		return err
	}
	defer func() { _ = bounded(time.Second, client.Disconnect) }() // best effort
	admin, watch := client.Database("admin"), clock.From(ctx)
	var sent clock.Reading
	var hello bson.Raw
	for range 2 { // the first command also opens the connection
		sent = watch.Now()
		if hello, err = admin.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw(); err != nil {
			return err
		}
	}
	trip := watch.Now().Mono - sent.Mono
	at, ok := hello.Lookup("localTime").TimeOK()
	if !ok {
		return errors.New("it does not report its clock")
	}
	m.Kind = "other"
	for field, state := range map[string]string{
		"ismaster": "primary", "secondary": "secondary", "arbiterOnly": "arbiter",
	} {
		if is, _ := hello.Lookup(field).BooleanOK(); is {
			m.Kind = state
		}
	}
	m.Ahead, m.RoundTrip = at.Sub(sent.Wall.Add(trip/2)), trip
	return nil
}

// warnOfMembers warns of members that do not answer, of clocks that differ, and of a majority that
// tolerates no failure. Different clocks matter because an election makes another member's clock
// the server's clock.
func (r *report) warnOfMembers() {
	var timed []member
	voting, data := len(r.Members), 0
	for _, m := range r.Members {
		if m.State != "arbiter" {
			data++
		}
		switch {
		case m.Problem != "":
			r.warn("member %v", m)
		case m.State != "arbiter":
			timed = append(timed, m)
		}
	}
	if voting > data && data <= voting/2+1 {
		r.warn("%d of %d members are arbiters: when one of the others is down, no write is acknowledged "+
			"by a majority, and no lock can be acquired; replace an arbiter by a member with data",
			voting-data, voting)
	}
	const allowed = words.DefaultTakeover / 30
	if len(timed) == 0 {
		return
	}
	byClock := func(a, b member) int { return cmp.Compare(*a.AheadMS, *b.AheadMS) }
	first, last := slices.MinFunc(timed, byClock), slices.MaxFunc(timed, byClock)
	apart := duration(last.AheadMS) - duration(first.AheadMS)
	tolerance := (duration(last.RoundTripMS) + duration(first.RoundTripMS)) / 2
	if apart-tolerance > allowed {
		r.warn("the clocks of %s and %s differ by %v: an election can change the server's "+
			"clock by that much, and a dead holder is then watched anew; run NTP on both",
			shown(last.Host, 100), shown(first.Host, 100), apart)
	}
}

// writeConcern records the write concern of a replica set. It warns if the replica set may lose
// writes that a majority has acknowledged. The check needs the privilege to read the configuration
// of the replica set.
func (x *examination) writeConcern(ctx context.Context) error {
	reply, err := x.st.primary("admin").RunCommand(ctx,
		bson.D{{Key: "replSetGetConfig", Value: 1}}).Raw()
	var server mongo.ServerError
	switch {
	case errors.As(err, &server):
		x.WriteConcern = "majority, journaled; whether the set journals by default is unknown: the " +
			"check needs the privilege replSetGetConfig on the cluster"
		return nil
	case err != nil:
		return fmt.Errorf("read the configuration of the replica set: %w", err)
	}
	x.WriteConcern = "majority, journaled"
	if journals, ok := reply.Lookup("config", "writeConcernMajorityJournalDefault").BooleanOK(); ok &&
		!journals {
		x.warn("the replica set has writeConcernMajorityJournalDefault: " +
			"false: acknowledged locks may be lost if a majority loses power at the same time; " +
			"set it to true")
	}
	return nil
}

// staleAfter is the age at which package distlock prunes a ping by default.
const staleAfter = 4 * 24 * time.Hour

// troubles are the marks of processes of which doctor warns, the most important first.
var troubles = []struct{ mark, text string }{
	{"no ping", "have no ping: they are dead, or their pings were removed"},
	{"silent", "are silent: the next contenders take their locks over"},
	{"condemned", "were declared dead: the next contenders take their locks over"},
	{"foreign", "belong to a mongos or MongoDB's own lock manager, without fences and queues"},
}

// processes warns of dead and foreign processes, of old pings and of malformed documents.
func (x *examination) processes(ctx context.Context) error {
	all, err := new(processes).collect(ctx, x.st)
	if err != nil {
		return err
	}
	found := map[string][]string{} // mark: processes with it
	stale := 0
	for _, p := range all.Processes {
		if len(p.Holds)+len(p.Waits) > 0 {
			for _, t := range troubles {
				if slices.Contains(p.Marks, t.mark) {
					found[t.mark] = append(found[t.mark], p.Process)
					break
				}
			}
		} else if duration(p.PingAgeMS) > staleAfter {
			stale++
		}
	}
	for _, t := range troubles {
		if n := len(found[t.mark]); n > 0 {
			x.warn("processes that hold or wait (%d, see distlock ps) %s: %s", n, t.text,
				listed(found[t.mark]))
		}
	}
	if stale > 0 {
		x.warn("%d pings of processes that hold nothing are older than %s: no process prunes them, "+
			"so no process of distlock is alive, or its Takeover is longer", stale, age(staleAfter))
	}
	if n := len(all.Malformed); n > 0 {
		x.warn("%d documents cannot be understood: distlock locks shows the remedy", n)
	}
	return nil
}
