package claim

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/internal/rows"
)

// number is the _id of a row of the tests.
func number(r rows.Row) int { n, _ := r.ID.AsInt64OK(); return int(n) }

// It tries to break: rows that the server refuses to change stop all others. They are set aside,
// counted and told of, the rest is done, and they are done when the server takes them again.
func TestRun_RefusedRows_OthersGoOn(t *testing.T) {
	for name, cfg := range map[string]Config{"one": {}, "batch": {Batch: 10, Workers: 2}} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n, bad = 50, 7
			w.add(0, n)
			w.rows.Refuse(func(r rows.Row) error {
				if number(r) < bad {
					return errors.New("document failed validation")
				}
				return nil
			})
			p := w.start(cfg)
			stop := p.run(t, func(context.Context, *Row[item]) error { return nil })
			w.settle(time.Minute, func(c Counts) bool { return c.Done == n-bad })
			time.Sleep(3 * time.Hour)
			if c, err := p.Counts(t.Context()); err != nil || c.Refused != bad {
				t.Errorf("%+v, %v, want %d refused", c, err, bad)
			}
			if told := w.logs.with("set aside", "failed validation"); told != bad {
				t.Errorf("%d lines tell of refused rows, want %d", told, bad)
			}
			notice := false
			for l, err := range p.m.Inspector().Locks(t.Context()) {
				notice = notice || err == nil && l.Name == "claim:db.rows:queue:refused" && l.Why != ""
			}
			if !notice {
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

// It tries to break: a completion that the server refuses keeps those of all other rows from being
// sent. It is sent again when the server takes it, and the handler does not run again.
func TestRun_RefusedCompletion_OthersGoOn(t *testing.T) {
	for name, cfg := range map[string]Config{"one": {}, "batch": {Batch: 10, Workers: 2}} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n = 500
			w.add(0, n)
			w.rows.Refuse(func(r rows.Row) error {
				if number(r) == 3 && r.Mark.State == rows.Claimed {
					return errors.New("document failed validation")
				}
				return nil
			})
			p := w.start(cfg)
			var handled atomic.Int32
			stop := p.run(t, func(context.Context, *Row[item]) error { handled.Add(1); return nil })
			w.settle(time.Minute, func(c Counts) bool { return c.Done == n-1 && c.Claimed == 1 })
			time.Sleep(10 * time.Minute)
			w.rows.Refuse(nil)
			w.settle(2*time.Hour, allDone(n))
			stop()
			if got := handled.Load(); got != n {
				t.Errorf("%d rows were handled, want %d", got, n)
			}
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
		p.gate.set(func(_ context.Context, command string, apply func() error) error {
			switch command {
			case "mark one":
				return &rows.RefusedError{}
			case "candidates":
				return &rows.QueryError{Err: errors.New("unknown operator: $foo")}
			}
			return apply()
		})
		wantErr(t, p.Run(t.Context(), func(context.Context, *Row[item]) error { return nil }), ErrConfig)
	})
}
