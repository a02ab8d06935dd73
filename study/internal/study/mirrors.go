package study

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// This file is what three mirrored config servers do with a write: the client sends it to each,
// each carries it out by itself, and the client compares what they answer (r1.8.5
// client/syncclusterconnection.cpp:275-318, r2.0.9 :286-329). Reads ask the first (H21).

// errNotSame is UpdateNotTheSame: it has matched on some of the servers only.
var errNotSame = errors.New("the servers disagree")

// everywhere updates the lock on all mirrored servers, and waits for the answers of all.
func (p line) everywhere(kind Kind, match, set bson.D) (int, error) {
	counts := make([]int, 1+len(p.w.copies))
	var all []*command
	for i := range counts {
		c := p.updateOf(i, kind, match, set, &counts[i])
		c.submit()
		all = append(all, c)
	}
	var err error
	for _, c := range all {
		err = errors.Join(err, c.await())
	}
	if err == nil && slices.Min(counts) != slices.Max(counts) {
		err = errNotSame
	}
	return counts[0], err
}

// updateOn updates the lock on one of the servers, whatever was there.
func (p line) updateOn(server int, kind Kind, match, set bson.D) error {
	c := p.updateOf(server, kind, match, set, new(int))
	c.submit()
	return c.await()
}

func (p line) updateOf(server int, kind Kind, match, set bson.D, n *int) *command {
	return &command{p: p.process, source: p.source, server: server, kind: kind, limit: p.limit,
		op:   fmt.Sprintf("update locks on server %d", server+1),
		text: func() string { return says(match) + " set " + says(set) },
		apply: func() error {
			*n = p.changeOn(server, match, set)
			return nil
		}, answer: func() string { return fmt.Sprintf("n: %d", *n) }}
}

func (p line) changeOn(server int, match, set bson.D) int {
	if server == 0 {
		return len(p.w.change(locks, match, set, false))
	}
	d := p.w.copies[server-1]
	if d == nil || !d.matches(match) {
		return 0
	}
	p.w.copies[server-1] = d.with(set)
	raw, err := bson.Marshal(bson.D(d.with(set)))
	if err != nil {
		panic("study: " + err.Error())
	}
	p.w.record.version(p.process, p.source, locks, fmt.Sprintf("server %d", server+1), raw)
	return 1
}

// findOn reads the lock on one of the servers.
func (p line) findOn(server int) (d document, err error) {
	err = p.send(p.source, Reread, fmt.Sprintf("find locks on server %d", server+1), none,
		func() error {
			if server > 0 {
				d = p.w.copies[server-1]
			} else if found := p.w.read(locks, byID(lockName)); len(found) > 0 {
				d = found[0]
			}
			return nil
		}, func() string { return p.w.record.brief(d) })
	return d, err
}

// larger reports whether an ObjectID is larger than another: by the clocks of their makers (H20).
func larger(a, b bson.ObjectID) bool { return bytes.Compare(a[:], b[:]) > 0 }

// tournament is what follows when the servers disagree about a grab, :279-303: the largest ts wins,
// and the losers leave behind what they wrote (H19).
func (g *gen18) tournament(name string, ts bson.ObjectID, set bson.D) (tenure, error) {
	var largest bson.ObjectID
	for i := range 1 + len(g.p.w.copies) {
		d, err := g.at(285, 185).findOn(i)
		if err != nil {
			return nil, err
		}
		if larger(d.id("ts"), largest) {
			largest = d.id("ts")
		}
	}
	if largest != ts {
		g.at(301, 199).note("the servers disagree, and another's ts is larger: lost")
		return nil, errHeld
	}
	g.at(294, 194).note("the servers disagree, and its ts is the largest: won")
	_, err := g.at(297, 196).update(Finalize, locks, byID(name), set, false)
	if err != nil {
		g.at(297, 196).note(breaksOff + ": another exception, which escapes")
		return nil, err
	}
	return &held18{bare{g.id, ts}, g, name}, nil
}

// errInterrupted: a server has no lock document, or it was freed meanwhile.
var errInterrupted = errors.New("the tournament is interrupted")

// tournament is what follows when the servers disagree about a grab, :736-813: it protects the lock
// on each server with its own ts, and the largest wins.
func (g *gen20) tournament(name string, ts bson.ObjectID) error {
	var largest bson.ObjectID
	for i := range 1 + len(g.p.w.copies) {
		d, err := g.at(752, 902).findOn(i)
		if err == nil && (larger(ts, d.id("ts")) || d.state() == 0) {
			if d.value("ts") == nil { // bson/bsonelement.h:72 throws 13111, and :782 13661
				g.at(761, 912).note(breaksOff+": server %d has no lock to protect", i+1)
				return errInterrupted
			}
			own := bson.D{{Key: "ts", Value: ts}, {Key: "state", Value: prepared}}
			if err = g.at(768, 920).updateOn(i, Finalize,
				bson.D{{Key: "_id", Value: name}, {Key: "ts", Value: d.id("ts")}}, own); err == nil {
				d, err = g.at(770, 922).findOn(i)
			}
			// r2.0.9:773 asserts 1
			if err == nil && (d.state() <= 0 || d.state() != prepared && !g.release.since(2, 1, 0)) {
				g.at(773, 928).note(breaksOff+": on server %d the state is %d by now", i+1, d.state())
				if g.release.since(2, 5, 0) {
					g.loses(ts)
				}
				return errInterrupted
			}
		}
		if err != nil {
			return err // :782, 13661
		}
		if larger(d.id("ts"), largest) {
			largest = d.id("ts")
		}
	}
	if largest != ts {
		g.at(805, 970).note("the servers disagree, and another's ts is larger: lost")
		g.loses(ts)
		return errHeld
	}
	g.at(801, 967).note("the servers disagree, and its ts is the largest: won")
	return nil
}

// loses queues the release of what a loser may have left behind, :809. Since 3.0 it stays
// (SERVER-13585): by then the winner may count on it.
func (g *gen20) loses(ts bson.ObjectID) {
	if !g.release.since(3, 0, 0) {
		g.later(g.at(809, 974), ts)
	}
}
