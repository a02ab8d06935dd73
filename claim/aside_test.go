package claim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: rows that the server refuses to change stop all others. They are set aside,
// counted and told of, the rest is done, and they are done when the server takes them again.
func TestRun_RefusedRows_OthersGoOn(t *testing.T) {
	for name, cfg := range map[string]Config{"one": {}, "batch": {Batch: 10, Workers: 2}} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n, bad = 50, 7
			w.add(0, n)
			w.refuse(func(r rows.Row) bool { return number(r) < bad })
			p := w.start(cfg)
			stop := p.run(t, atOnce)
			w.settle(time.Minute, func(c Counts) bool { return c.Done == n-bad })
			assert.MustEqual(t, w.logs.with("set aside", "failed validation"), bad,
				"%d lines tell of refused rows, want %d")
			time.Sleep(3 * time.Hour)
			if c, err := p.Counts(t.Context()); err != nil || c.Refused != bad {
				t.Errorf("%+v, %v, want %d refused", c, err, bad)
			}
			if p.notice(t) == "" {
				t.Error("no lock tells of them")
			}
			if tries := p.gate.count("mark"); tries > 40*bad+n {
				t.Errorf("%d claims were sent", tries)
			}
			w.rows.Refuse(nil)
			w.settle(2*time.Hour, allDone(n))
			stop()
			if c, err := p.Counts(t.Context()); err != nil || c.Refused != 0 {
				t.Errorf("%+v, %v, want none refused", c, err)
			}
		})
	}
}

// notice is what the lock says that tells how many rows are refused; empty: there is none.
func (p *proc) notice(t *testing.T) (why string) {
	for l, err := range p.m.Inspector().Locks(t.Context()) {
		if err == nil && l.Name == "claim:db.rows:queue:refused" {
			why = l.Why
		}
	}
	return why
}

// It tries to break: the lock that tells how many rows are refused tells how many were at first.
func TestRun_MoreRowsAreRefused_TheNoticeSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 9)
		var bad atomic.Int32
		w.refuse(func(r rows.Row) bool { return number(r) <= int(bad.Load()) })
		p := w.start(Config{})
		stop := p.run(t, func(context.Context, *Row[item]) error { time.Sleep(time.Minute); return nil })
		time.Sleep(90 * time.Second)
		bad.Store(5)
		time.Sleep(10 * time.Minute)
		stop()
		c, err := p.Counts(t.Context())
		if why := p.notice(t); err != nil || c.Refused < 2 ||
			!strings.Contains(why, fmt.Sprint(c.Refused, " rows")) {
			t.Errorf("%q, and there are %d, %v", why, c.Refused, err)
		}
	})
}

// It tries to break: more rows are refused than a process keeps in mind, and those behind them are
// never claimed. When the server takes them all are done.
func TestRun_MoreRefusedThanRemembered_OthersAreDone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const bad, n = mostInFlight + 1500, 500
		w.add(0, bad+n)
		w.refuse(func(r rows.Row) bool { return number(r) < bad })
		w.start(Config{Batch: mostBatch, Workers: mostBatch}).run(t, atOnce)
		w.settle(time.Minute, func(c Counts) bool { return c.Done == n })
		w.rows.Refuse(nil)
		w.settle(3*time.Hour, allDone(bad+n))
	})
}

// It tries to break: thousands of rows that cannot be understood stand before the others, and are
// read again before all of them were seen, or a few at a time.
func TestRun_ManyMalformed_OthersAreDone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 10)
		p := w.start(Config{Batch: 10, Tend: 50 * time.Millisecond, Poll: 50 * time.Millisecond})
		for i := range 6000 {
			id := binary.LittleEndian.AppendUint32(nil, uint32(i+1000))
			p.gate.odd = append(p.gate.odd, rows.Malformed{Field: "claim.fence", Problem: "is a string",
				ID: bson.RawValue{Type: bson.TypeInt32, Value: id}})
		}
		p.gate.on(func(apply func() error) error {
			time.Sleep(20 * time.Millisecond)
			return apply()
		}, "candidates")
		p.run(t, atOnce)
		w.settle(10*time.Second, func(c Counts) bool { return c.Done == 10 })
	})
}

// It tries to break: rows that the server claims and nobody can read, as with a number of attempts
// that is a Decimal128, are an error in place of the next row, now and when they are given back.
func TestClaim_MalformedWhenClaimed_TheNextIsGiven(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 3)
		p, odd := w.start(Config{}), 0
		p.gate.on(func(apply func() error) error {
			if err := apply(); err != nil || odd == 2 {
				return err
			}
			odd++
			return &rows.Malformed{ID: w.row(odd - 1).ID, Field: "claim.attempts", Problem: "is a decimal"}
		}, "mark one")
		got := p.take(t, 1)
		if len(got) != 1 || got[0].Doc.ID != 2 {
			t.Fatalf("got %d rows, want the third one", len(got))
		}
		assert.NoErr(t, got[0].Done(t.Context()))
		w.settle(time.Minute, are(Counts{Ready: 2, Done: 1}))
		assert.Equal(t, len(p.take(t, 1)), 0, "%d rows that are left alone were given, want %d")
		assert.Equal(t, w.logs.with("not understood", "claim.attempts"), 2, "%d lines, want %d")
	})
}

// It tries to break: a completion that the server refuses keeps those of all other rows from being
// sent. It is sent again when the server takes it, and the handler does not run again.
func TestRun_RefusedCompletion_OthersGoOn(t *testing.T) {
	for name, cfg := range map[string]Config{"one": {}, "batch": {Batch: 10, Workers: 2}} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n = 500
			w.add(0, n)
			w.refuse(func(r rows.Row) bool { return number(r) == 3 && r.Mark.State == rows.Claimed })
			p := w.start(cfg)
			var handled atomic.Int32
			stop := p.run(t, func(context.Context, *Row[item]) error { handled.Add(1); return nil })
			w.settle(time.Minute, func(c Counts) bool { return c.Done == n-1 && c.Claimed == 1 })
			time.Sleep(10 * time.Minute)
			w.rows.Refuse(nil)
			w.settle(2*time.Hour, allDone(n))
			stop()
			assert.Equal(t, handled.Load(), n, "%d rows were handled, want %d")
		})
	}
}

// It tries to break: a row that is given back again and again keeps all others from their turn.
func TestRun_GivenBackForEver_OthersHaveTheirTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 11)
		p := w.start(Config{})
		given := 0
		stop := p.run(t, func(ctx context.Context, row *Row[item]) error {
			if row.Doc.ID > 0 {
				return nil
			}
			time.Sleep(time.Millisecond) // else no time passes where there is no pause
			if given++; row.Attempt() != 1 {
				t.Errorf("attempt %d", row.Attempt())
			}
			return row.GiveBack(ctx)
		})
		time.Sleep(time.Minute)
		stop()
		if c := w.counts(); c.Done != 10 || given < 10 || given > 100 {
			t.Errorf("%+v, the other one was given %d times in a minute", c, given)
		}
	})
}

// It tries to break: a query that the server refuses is asked for ever.
func TestRun_RefusedQuery_EndsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		refused := &rows.QueryError{Err: errors.New("unknown operator: $foo")}
		p.gate.set(func(_ context.Context, command string, apply func() error) error {
			switch command {
			case "mark one":
				return &rows.RefusedError{}
			case "candidates":
				return refused
			}
			return apply()
		})
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		wantErr(t, p.Run(ctx, atOnce), ErrConfig)
	})
}
