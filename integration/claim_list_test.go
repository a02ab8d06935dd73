package integration_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/claim"
	"mongodlm/internal/test/assert"
)

// Dead rows are listed with what they died of, tried again, and removed, without a Manager; and
// nothing else is.
func TestClaim_DeadRows_ListedRetriedRemoved(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll, ctx, cfg := w.rowsOf(t, w.d.app), t.Context(), claim.Config{MaxAttempts: 1, InFlight: 100}
		q := w.claims(t, w.patient(t), coll, cfg)
		assert.Must(t, q.Add(ctx, jobs(8)...))
		rows, err := q.Claim(ctx, 8)
		if err != nil || len(rows) != 8 {
			t.Fatal(len(rows), err)
		}
		for i, row := range rows[:7] {
			end := func() error { return row.Done(ctx) }
			if i < 5 {
				end = func() error { return row.Fail(ctx, errors.New("broken")) }
			}
			assert.Must(t, end())
		}
		list := func(state claim.State) (found []claim.Info) {
			t.Helper()
			for info, err := range claim.List(ctx, coll, cfg, state) {
				assert.Must(t, err)
				found = append(found, info)
			}
			return found
		}
		for state, want := range map[claim.State]int{claim.StateDead: 5, claim.StateDone: 2,
			claim.StateClaimed: 1, claim.StateReady: 0} {
			assert.MustEqual(t, len(list(state)), want, "%d rows in "+string(state)+", want %d")
		}
		dead := list(claim.StateDead)
		one := dead[0]
		if one.Attempts != 1 || one.LastError != "broken" || len(one.Errors) != 1 ||
			one.Errors[0].Error != "broken" || one.Errors[0].Process == "" ||
			time.Since(one.DeadAt) > time.Minute || one.Doc.Lookup("n").Type == 0 {
			t.Errorf("%+v", one)
		}
		number := func(id bson.RawValue) int { return int(id.AsInt64()) }
		wantN(t, 1)(claim.Retry(ctx, coll, cfg, one.ID, rows[6].ID(), rows[7].ID(), "none"))
		wantN(t, 1)(claim.Retry(ctx, coll, cfg, number(dead[1].ID)))
		ready := list(claim.StateReady)
		if len(ready) != 2 || ready[0].Attempts != 0 || len(ready[0].Errors) != 1 ||
			!ready[0].DeadAt.IsZero() {
			t.Errorf("%+v", ready)
		}
		wantN(t, 1)(claim.Delete(ctx, coll, cfg, claim.StateDead, one.ID, dead[2].ID, rows[7].ID()))
		wantN(t, 0)(claim.Purge(ctx, coll, cfg, claim.StateDead, time.Hour))
		wantN(t, 2)(claim.Purge(ctx, coll, cfg, claim.StateDone, 0))
		wantN(t, 2)(claim.RetryAll(ctx, coll, cfg))
		wantCounts(t, q, standstill, claim.Counts{Ready: 4, Claimed: 1})
		assert.Is(t, assert.Err(claim.Purge(ctx, coll, cfg, claim.StateReady, 0)), claim.ErrConfig)
		again, err := q.Claim(ctx, 1)
		if err != nil || len(again) != 1 || again[0].Attempt() != 1 || len(again[0].Errors()) != 1 {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func wantN(t *testing.T, want int) func(int, error) {
	t.Helper()
	return func(got int, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%d, %v, want %d", got, err, want)
		}
	}
}

// The index for KeepDone is made only where it is used, and what is removed is found by it.
func TestClaim_KeepDone_HasAnIndex(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll, ctx := w.rowsOf(t, w.d.app), t.Context()
		w.claims(t, w.patient(t), coll, claim.Config{})
		keeps := claim.Config{KeepDone: time.Hour}
		missing, err := claim.MissingIndexes(ctx, coll, keeps)
		if err != nil || len(missing) != 1 || !strings.Contains(missing[0], "claim.doneAt") {
			t.Errorf("missing are %q, %v", missing, err)
		}
		q := w.claims(t, w.patient(t), coll, keeps)
		if missing, err = claim.MissingIndexes(ctx, coll, keeps); err != nil || len(missing) != 0 {
			t.Errorf("missing are %q, %v", missing, err)
		}
		assert.Must(t, q.Add(ctx, jobs(3)...))
		rows, err := q.Claim(ctx, 1)
		if err != nil || len(rows) != 1 {
			t.Fatal(len(rows), err)
		}
		assert.Must(t, rows[0].Done(ctx))
		wantN(t, 0)(claim.Purge(ctx, coll, keeps, claim.StateDone, time.Minute))
		eventually(t, standstill, "the row is older", func() bool {
			n, err := claim.Purge(ctx, coll, keeps, claim.StateDone, time.Millisecond)
			return err == nil && n == 1
		})
	})
}
