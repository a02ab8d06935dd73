package claim

import (
	"context"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/memrows"
)

// If more rows are added than a process can know, the rows that are due first begin in time.
func TestDue_ManyLaterRows_EarlierRowIsInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Due: "execute_at"})
		p := w.start(Config{Due: "execute_at"})
		begun := make(chan time.Duration, 1)
		p.run(t, func(_ context.Context, row *Row[item]) error {
			begun <- time.Since(row.Doc.Due)
			return nil
		})
		time.Sleep(time.Hour) // polls are far apart now
		later, soon := time.Now().Add(10*time.Hour), time.Now().Add(30*time.Minute+7*time.Second)
		docs := make([]any, 2*mostKnown)
		for i := range docs {
			docs[i] = item{ID: i, Due: later}
		}
		docs = append(docs, item{ID: len(docs), Due: soon})
		assert.Must(t, w.rows.Insert(t.Context(), docs))
		if late := <-begun; late > 5*time.Second {
			t.Errorf("the row begins %v after its due time", late)
		}
	})
}

// If more rows become due one after the other than a process reads at a time, each of them begins
// in time.
func TestDue_MoreRowsThanOneRead_AllAreInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Due: "execute_at"})
		w.start(Config{Due: "execute_at"}).run(t, func(_ context.Context, row *Row[item]) error {
			if late := time.Since(row.Doc.Due); late > time.Second {
				t.Errorf("row %d begins %v after its due time", row.Doc.ID, late)
			}
			return nil
		})
		time.Sleep(time.Hour) // polls are far apart now
		docs, due := make([]any, 5*mostKnown/2), time.Now().Add(time.Hour)
		for i := range docs {
			docs[i] = item{ID: i, Due: due.Add(time.Duration(i) * time.Second)}
		}
		assert.Must(t, w.rows.Insert(t.Context(), docs))
		time.Sleep(2 * time.Hour)
		w.want(Counts{Done: int64(len(docs))})
	})
}

// If many later rows arrive before a process reads due times, it still knows the rows that are due
// first.
func TestDue_ManyArriveBeforeTheRead_FirstRowsAreInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Due: "execute_at"})
		w.start(Config{Due: "execute_at"}).run(t, func(_ context.Context, row *Row[item]) error {
			if late := time.Since(row.Doc.Due); late > time.Second {
				t.Errorf("row %d begins %v after its due time", row.Doc.ID, late)
			}
			return nil
		})
		time.Sleep(time.Hour)
		start, id := time.Now(), 0
		add := func(n int, due time.Duration) {
			docs := make([]any, n)
			for i := range docs {
				docs[i] = item{ID: id, Due: start.Add(due + time.Duration(id)*time.Second)}
				id++
			}
			assert.Must(t, w.rows.Insert(t.Context(), docs))
		}
		add(600, 30*time.Minute)
		time.Sleep(time.Minute)
		add(2*mostKnown-600+1, 10*time.Hour) // the process forgets all rows
		add(2*mostKnown-100, 10*time.Hour)
		time.Sleep(2 * time.Hour)
		assert.Equal(t, w.counts().Done, 600, "%d rows are done, want %d")
	})
}

// Run returns at the end of its context, also while the reads of due times fail.
func TestRun_ReadsOfDueTimesFail_ReturnsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Due: "execute_at"})
		var stops []func()
		for range 5 {
			p := w.start(Config{Due: "execute_at"})
			p.gate.on(func(func() error) error { return catalog.ErrUnavailable }, "later")
			stops = append(stops, p.run(t, finish))
		}
		time.Sleep(time.Hour) // the pause after a failure is a minute
		for _, stop := range stops {
			began := time.Now()
			stop()
			if took := time.Since(began); took > time.Second {
				t.Errorf("Run returned after %v", took)
			}
		}
	})
}
