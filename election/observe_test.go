package election_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// watch collects the results of Observe until the returned function is called.
func watch(e *election.Election) func() (leaders []election.Leader, errs []error) {
	var leaders []election.Leader
	var errs []error
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l, err := range e.Observe(ctx) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			leaders = append(leaders, l)
		}
	}()
	return func() ([]election.Leader, []error) {
		synctest.Wait()
		cancel()
		<-done
		return leaders, errs
	}
}

// Observe yields every leader once, and every period without a leader once.
func TestObserve_EveryChange_NobodyIncluded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o, p := w.Start(nil), w.Start(nil)
		stop := watch(election.New(o.Manager, name))
		time.Sleep(reading)
		a := w.stand(p, election.Metadata("a:1"), election.Backoff(time.Hour, time.Hour))
		l := a.wantLeader()
		time.Sleep(reading)
		b := w.stand(w.Start(nil), election.Metadata("b:1"))
		candidates, err := a.e.Candidates(t.Context())
		if err != nil || len(candidates) != 1 || candidates[0].Metadata != "b:1" ||
			candidates[0].Process != b.p.Process() {
			t.Errorf("candidates %+v, %v", candidates, err)
		}
		if err := b.e.RequestYield(t.Context(), "x"); err != nil { // does not change the leader
			t.Error(err)
		}
		time.Sleep(reading)
		l.finish <- nil
		b.wantLeader().obey()
		now, err := a.e.Leader(t.Context())
		if err != nil || now.Metadata != "b:1" || now.Process != b.p.Process() {
			t.Errorf("leader %+v, %v", now, err)
		}
		time.Sleep(reading)
		_ = b.quit()
		time.Sleep(reading)
		leaders, errs := stop()
		_ = a.quit()
		if len(errs) != 1 {
			t.Errorf("errors %v, want the end only", errs)
		}
		var received []string
		for _, l := range leaders {
			received = append(received, fmt.Sprint(l.Metadata, l.Nobody))
		}
		if fmt.Sprint(received) != fmt.Sprint([]string{"true", "a:1false", "b:1false", "true"}) {
			t.Errorf("received %q", received)
		}
		if leaders[2].Fence != leaders[1].Fence+1 || leaders[2] != now || leaders[2].Since.IsZero() {
			t.Errorf("%+v", leaders)
		}
		if now, err = a.e.Leader(t.Context()); err != nil || !now.Nobody {
			t.Errorf("want no leader: %+v, %v", now, err)
		}
	})
}

// A thousand observers of fifty elections in one process send no more commands than one observer.
func TestObserve_Thousand_CommandsOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.stand(w.Start(nil)).wantLeader().obey()
		one, many := w.Start(nil), w.Start(nil)
		_ = watch(election.New(one.Manager, name))
		var stops []func() ([]election.Leader, []error)
		for i := range 1000 {
			n := name
			if i%50 > 0 {
				n = fmt.Sprint(name, i%50)
			}
			stops = append(stops, watch(election.New(many.Manager, n)))
		}
		time.Sleep(time.Minute)
		few, lots := one.Store.Count(fault.Look), many.Store.Count(fault.Look)
		time.Sleep(time.Hour)
		few, lots = one.Store.Count(fault.Look)-few, many.Store.Count(fault.Look)-lots
		if few < 500 || lots > few+few/10 {
			t.Errorf("in an hour one observer sent %d commands, 1000 sent %d", few, lots)
		}
		for i, stop := range stops {
			if leaders, _ := stop(); len(leaders) != 1 || leaders[0].Nobody != (i%50 > 0) {
				t.Fatalf("observer %d received %+v", i, leaders)
			}
		}
		lots = many.Store.Count(fault.Look)
		time.Sleep(time.Hour)
		assert.Equal(t, many.Store.Count(fault.Look)-lots, 0,
			"%d commands although there is no observer, want %d")
	})
}

// Observe continues after an outage, a malformed document, and a lock in another mode. It yields
// each problem once, and then the leader again.
func TestObserve_BadDays_ToldOnce_GoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := w.Start(nil)
		stop := watch(election.New(o.Manager, name))
		holder := w.Start(nil)
		a := w.stand(holder)
		a.wantLeader().obey()
		time.Sleep(reading)
		w.kill(o)
		time.Sleep(time.Minute)
		o.Heal()
		time.Sleep(reading)
		var doc bson.D
		assert.Must(t, bson.Unmarshal(w.Mem.Document(catalog.LocksCollection, name), &doc))
		put := func(doc bson.D) {
			assert.NoErr(t, w.Mem.Put(catalog.LocksCollection, doc))
			time.Sleep(2 * reading)
		}
		w.kill(holder) // otherwise a ping detects the loss of the lock
		put(bson.D{{Key: "_id", Value: name}, {Key: "state", Value: "odd"}})
		put(doc)
		holder.Heal()
		_ = a.quit()
		time.Sleep(reading)
		g := assert.Value(o.Lock(name).TryLock(t.Context(), distlock.Shared()))(t)
		time.Sleep(reading)
		leaders, errs := stop()
		if len(leaders) != 5 || !leaders[0].Nobody || leaders[1] != leaders[2] ||
			leaders[1] != leaders[3] || !leaders[4].Nobody {
			t.Errorf("received %+v", leaders)
		}
		if len(errs) != 4 {
			t.Fatalf("errors %v", errs)
		}
		for i, want := range []error{
			distlock.ErrUnavailable, distlock.ErrMalformed, election.ErrMode, context.Canceled,
		} {
			wantErr(t, errs[i], want)
		}
		_ = g.Release()
	})
}

// An election treats the holder of a plain lock as a leader without metadata. It refuses a shared
// lock and a semaphore.
func TestElection_NameInUseForALock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, e := w.Start(nil), election.New(w.Start(nil).Manager, name)
		g := assert.Value(p.Lock(name).TryLock(t.Context(), distlock.Why("backup")))(t)
		if l, err := e.Leader(t.Context()); err != nil || l.Nobody || l.Metadata != "" ||
			l.Fence != g.Fence() {
			t.Errorf("%+v, %v", l, err)
		}
		for l, err := range e.Observe(t.Context()) {
			if err != nil || l.Fence != g.Fence() {
				t.Errorf("%+v, %v", l, err)
			}
			break
		}
		assert.NoErr(t, e.RequestYield(t.Context(), "an election"))
		if h, err := p.Lock(name).Holder(t.Context()); err != nil || h.YieldWhy != "an election" ||
			h.YieldBy == "" {
			t.Errorf("%+v, %v", h, err)
		}
		_ = g.Release()
		never := func(context.Context, *election.Leadership) error { t.Error("called"); return nil }
		for _, mode := range []distlock.Option{distlock.Shared(), distlock.Permits(3)} {
			g, err := p.Lock(name).TryLock(t.Context(), mode)
			assert.Must(t, err)
			wantErr(t, e.Run(t.Context(), never), election.ErrMode)
			_, err = e.Leader(t.Context())
			wantErr(t, err, election.ErrMode)
			wantErr(t, e.RequestYield(t.Context(), "x"), election.ErrNobody)
			_ = g.Release()
		}
	})
}
