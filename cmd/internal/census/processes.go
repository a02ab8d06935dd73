package census

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// A Process is a process that pings, holds a lock or waits for a lock.
type Process struct {
	distlock.LockInfo // a row of the process, for the ping; without the fields of the lock
	Holds, Waits      []distlock.LockInfo
	// Ahead is the offset of the process's clock from the server's clock at the last ping. It is nil
	// if unknown.
	Ahead *time.Duration
}

// Rank orders the processes: dead holders (0), dead waiters, live processes, and then other dead
// processes (3). A process is dead if it is silent, was declared dead, or has no readable ping.
func (p *Process) Rank() int {
	switch {
	case !words.Suspect(p.LockInfo): // the row has no lease
		return 2
	case len(p.Holds) > 0:
		return 0
	case len(p.Waits) > 0:
		return 1
	}
	return 3
}

// awaited returns the number of waiters for the locks that the process holds.
func (p *Process) awaited() (n int) {
	for _, i := range p.Holds {
		n += i.Waiters
	}
	return n
}

// Processes returns the processes of a listing and of the pings. The order is that of Rank. Among
// dead holders, those with more waiters come first. Otherwise the youngest ping comes first.
func (l *Listing) Processes(pings Pings) (all []*Process) {
	known := map[string]*Process{}
	of := func(i distlock.LockInfo) *Process {
		p := known[i.Process]
		if p == nil {
			i.Who, i.Lease = "", 0 // the fields belong to the lock
			p = &Process{LockInfo: i}
			known[i.Process] = p
			all = append(all, p)
		}
		return p
	}
	for _, lock := range l.Locks {
		for _, i := range slices.Concat(lock.Holders, lock.Queue) {
			switch {
			case i.Process == "": // of a lock that was never held
			case i.Held:
				p := of(i)
				p.Holds = append(p.Holds, i)
			case i.Place > 0: // otherwise the last holder of a free lock
				p := of(i)
				p.Waits = append(p.Waits, i)
			}
		}
	}
	for _, ping := range pings.All {
		p := of(pings.row(ping))
		if !ping.Local.IsZero() {
			p.Ahead = new(ping.Local.Sub(ping.At))
		}
	}
	age := func(p *Process) time.Duration {
		if p.PingAge < 0 {
			return math.MaxInt64 // processes without a ping come last
		}
		return p.PingAge
	}
	slices.SortFunc(all, func(a, b *Process) int {
		return cmp.Or(a.Rank()-b.Rank(), b.awaited()-a.awaited(), cmp.Compare(age(a), age(b)),
			cmp.Compare(a.Process, b.Process))
	})
	return all
}

// Pings are the latest pings, the youngest first.
type Pings struct {
	All       []catalog.Ping
	Malformed []*distlock.MalformedError
	More      bool // there are more pings
	now       time.Time
}

// row returns a row for a process that neither holds a lock nor waits for one.
func (p Pings) row(ping catalog.Ping) distlock.LockInfo {
	i := distlock.LockInfo{Process: ping.Process, Place: 1, HasPing: true, PingAge: -1,
		PingEvery: ping.Interval, Takeover: ping.Takeover, Condemned: ping.Condemned != nil,
		Foreign: !ping.HasSeq && ping.Condemned == nil}
	if !p.now.IsZero() {
		i.PingAge = max(0, p.now.Sub(ping.At))
	}
	return i
}

// ReadPings reads at most the given number of pings, or all of them if it is 0.
func ReadPings(ctx context.Context, client *mongo.Client, database string, most int) (found Pings,
	err error) {
	if found.now, err = Now(ctx, client); err != nil {
		return found, err
	}
	opts := options.Find().SetSort(bson.D{{Key: "ping", Value: -1}})
	if most > 0 {
		opts.SetLimit(int64(most) + 1)
	}
	cursor, err := client.Database(database, options.Database().SetReadPreference(readpref.Primary())).
		Collection(catalog.PingsCollection).Find(ctx, bson.D{}, opts)
	if err != nil {
		return found, fmt.Errorf("list %s.%s: %w", database, catalog.PingsCollection, err)
	}
	for n := 1; cursor.Next(ctx); n++ {
		if found.More = most > 0 && n > most; found.More {
			break
		}
		ping, bad := catalog.ParsePing(cursor.Current)
		if bad != nil {
			found.Malformed = append(found.Malformed, bad)
			continue
		}
		found.All = append(found.All, ping)
	}
	return found, errors.Join(cursor.Err(), cursor.Close(ctx))
}

// Now returns the clock of the server that accepts writes. It sends one command.
func Now(ctx context.Context, client *mongo.Client) (time.Time, error) {
	var reply struct {
		LocalTime time.Time `bson:"localTime"`
	}
	// The command isMaster is used because the command hello exists only from MongoDB 4.4.2 on.
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}},
		options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&reply)
	return reply.LocalTime, err
}
