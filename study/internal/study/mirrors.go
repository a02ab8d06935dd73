package study

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// This file is what three mirrored config servers do with a write: the client sends it to each, each
// carries it out by itself, and the client compares what they answer (r1.8.5
// client/syncclusterconnection.cpp:275-318, r2.0.9 :286-329). Reads ask the first (H21).

// errNotSame is UpdateNotTheSame: it has matched on some of the servers only.
var errNotSame = errors.New("the servers disagree")

// Apart keeps the lock on three mirrored servers, each of which may hear of a write at another time.
func (s *Stage) Apart() {
	s.w.mirrors, s.w.copies = make([]time.Duration, 2), make([]document, 2)
}

// Empties takes the lock document away from the last of the mirrored servers.
func (s *Stage) Empties(at time.Duration) {
	s.w.At(at, -1, func() {
		s.w.copies[len(s.w.copies)-1] = nil
		s.w.record.mark(nil, "operator", "the last server is replaced by an empty one")
	})
}

// StrikesOn lets the nth command of a kind be under way for d to one of the mirrored servers: 0 is the
// first.
func (a *Actor) StrikesOn(server int, kind Kind, nth int, d time.Duration) {
	a.p.w.stops = append(a.p.w.stops, &stop{p: a.p, kind: kind, nth: nth, server: server, what: delayed, d: d})
}

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
	err = p.send(p.source, Reread, fmt.Sprintf("find locks on server %d", server+1), none, func() error {
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

// tournament is what follows when the servers disagree about a grab, :279-303: the largest ts wins, and
// the losers leave behind what they wrote (H19).
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

// tournament is what follows when the servers disagree about a grab, :736-813: it protects the lock on
// each server with its own ts, and the largest wins.
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
			if err = g.at(768, 920).updateOn(i, Finalize, bson.D{{Key: "_id", Value: name}, {Key: "ts", Value: d.id("ts")}},
				own); err == nil {
				d, err = g.at(770, 922).findOn(i)
			}
			if err == nil && (d.state() <= 0 || d.state() != prepared && !g.release.since(2, 1, 0)) { // r2.0.9:773 asserts 1
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

// replicated says why what is played with Apart cannot happen on a replica set.
func replicated() map[string]string {
	return not("its config servers are a replica set: a write is one command, to the primary",
		map[string]string{"3.2": catalog32 + "202", Ours: ""})
}

// apart are the cases of mirrored config servers that do not agree.
func apart() []Case {
	return []Case{{
		Name: "split-win", Title: "Two win on three mirrored servers", Hole: "H17", Length: 30 * m,
		Story: "C's release is slow to two of three servers; A grabs the lock on the first, and B, whose clock is a minute ahead, on the others.",
		Wrong: "1.8 asks who has the largest ts and writes over all three: when A asked it was A's, and when B asked it was B's.",
		Rule:  "2.0 first protects each server's document with its own ts, so B's grab matches nowhere; since 3.2, and in ours, there is one document.",
		Where: "distlock/acquire.go try",
		Not:   replicated(),
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B").Ahead(1*m), st.Process("C")
			st.Apart()
			c.Wants(1*s, no, 2*m)
			a.Wants(126*s, no, 10*m)
			b.Wants(123*s, no, 10*m)
			for server := range 3 {
				b.StrikesOn(server, Grab, 1, 23*s)
				if server > 0 {
					c.StrikesOn(server, Release, 1, 20*s)
					a.StrikesOn(server, Finalize, 1, 30*s)
				}
			}
		},
	}, {
		Name: "loser-leaves-debris", Title: "Who loses on three servers leaves the lock held on one", Hole: "H19", Length: 30 * m,
		Story: "C's release is slow to two of three servers; A, whose clock is three minutes behind, grabs the lock on the first only, and loses.",
		Wrong: "A's ts is the smallest, since a slow clock made it (H20); 1.8 leaves A's grab on the server from which all read, and A lives and pings.",
		Rule:  "2.0 queues a release of it; 3.0 does not, and forces it after 15 minutes, as what is only being prepared (SERVER-21315).",
		Where: "distlock/acquire.go try",
		Not:   replicated(),
		Play: func(st *Stage) {
			a, b, c := st.Process("A").Ahead(-3*m), st.Process("B"), st.Process("C")
			st.Apart()
			c.Wants(1*s, no, 2*m)
			a.Wants(126*s, no, 2*m)
			b.Wants(3*m, 25*m, 1*m)
			c.StrikesOn(1, Release, 1, 20*s)
			c.StrikesOn(2, Release, 1, 20*s)
		},
	}, {
		Name: "server-lacks-lock", Title: "One of three servers lacks the lock document", Hole: "G2-10", Length: 30 * m,
		Story: "The third mirrored server is replaced by an empty one; then B wants the lock, which nobody has.",
		Wrong: "The servers disagree about every grab and every force, and no tournament can be won: nobody gets the lock until a person comes (SERVER-12676).",
		Rule:  "A member of a replica set gets its documents from the others; ours makes the document with the first grab.",
		Where: "distlock/acquire.go try",
		Not:   replicated(),
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			st.Apart()
			a.Wants(1*s, no, 1*m)
			st.Empties(2 * m)
			b.Wants(3*m, 25*m, 1*m)
		},
	}, {
		Name: "loser-frees-winner", Title: "A loser's late release frees what the winner counts on", Hole: "G2-12", Length: 30 * m,
		Story: "A, B and C each grab the lock on one of three servers; C wins, and stands still for a minute before its second step; A asks again.",
		Wrong: "B has put its own ts on the first server and lost; its next ping frees that, A gets in there and wins all three, and C's second step writes over A's (SERVER-13585).",
		Rule:  "3.0 leaves what a loser wrote as it is; since 3.2, and in ours, there is one document.",
		Where: "distlock/acquire.go try",
		Not: merged(not("its losers release nothing", map[string]string{"1.6": file16 + "199", "1.8": file18 + "301"}),
			replicated()),
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C")
			st.Apart()
			a.Wants(1*s, no, 1*m)
			for _, actor := range []*Actor{a, b, c} {
				actor.Wants(123*s, map[*Actor]time.Duration{a: 10 * m}[actor], 10*m)
			}
			a.StrikesOn(1, Grab, 2, 1*s)
			a.StrikesOn(2, Grab, 2, 1*s)
			b.StrikesOn(1, Grab, 1, 1*s)
			c.StrikesOn(2, Grab, 1, 1*s)
			c.Strikes(pauseAfter, Reread, 5, no, 1*m)
		},
	}}
}
