package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

func hourly(last, now time.Time) (time.Time, error) {
	return singleton.LatestSlot(singleton.Every(time.Hour), last, now)
}

func (p *process) begin(choose func(last, now time.Time) (time.Time, error), over error) (
	time.Time, error) {
	p.w.t.Helper()
	guard := assert.Value(p.Lock("a").Lock(context.Background()))(p.w.t)
	defer func() {
		assert.NoErr(p.w.t, guard.Release())
	}()
	slot, err := singleton.BeginSlot(p.ctx, p.Manager, guard, p.store, choose)
	if err != nil {
		return time.Time{}, err
	}
	return slot.Time, slot.End(over)
}

// If several processes call BeginSlot for the same slot, exactly one of them begins the slot.
func TestBeginSlot_ManyAsk_OneBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ps := []*process{w.start(0), w.start(time.Hour), w.start(-time.Hour)}
		ask := func() (begun []time.Time) {
			t.Helper()
			for _, p := range ps {
				slot, err := p.begin(hourly, nil)
				if err == nil {
					begun = append(begun, slot)
				} else {
					wantErr(t, err, singleton.ErrNotDue)
				}
			}
			return begun
		}
		time.Sleep(90 * time.Minute)
		for i := range 3 {
			if got := ask(); len(got) != 1 || !got[0].Equal(w.started.Add(time.Duration(i+1)*time.Hour)) {
				t.Errorf("begun %v", got)
			}
			time.Sleep(time.Hour)
		}
		w.settings("a", stopped(true))
		if got := ask(); len(got) != 0 {
			t.Errorf("begun %v although stopped", got)
		}
		w.settings("a", stopped(false))
		if _, err := ps[0].begin(hourly, errors.New("boom")); err != nil {
			t.Error(err)
		}
		if s := w.status(); s.State != singleton.Failed || s.LastError != "boom" || s.Rounds != 4 {
			t.Errorf("status %+v", s)
		}
	})
}

// If the reply to a command is lost, exactly one of two calls of BeginSlot begins the slot.
func TestBeginSlot_AnswerLost_BegunOnce(t *testing.T) {
	for lost := range 4 {
		inBubbleSub(t, fmt.Sprint(lost), func(t *testing.T, w *world) {
			time.Sleep(90 * time.Minute)
			p := w.start(0)
			assert.Value(p.begin(hourly, nil))(t)
			time.Sleep(time.Hour)
			p.store.lose(lost, 1, true)
			_, first := p.begin(hourly, nil)
			p.store.Set(nil)
			_, second := p.begin(hourly, nil)
			s := w.status()
			if (first == nil) == (second == nil) && lost < 3 || !s.Slot.Equal(w.started.Add(2*time.Hour)) {
				t.Errorf("first %v, second %v, status %+v", first, second, s)
			}
		})
	}
}

// If no slot may begin, the errors of BeginSlot and LatestSlot give the reason.
func TestBeginSlot_NothingToBegin_SaysWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(0)
		_, err := p.begin(func(_, now time.Time) (time.Time, error) {
			return singleton.LatestSlot(timetable{}, time.Time{}, now)
		}, nil)
		wantErr(t, err, singleton.ErrNotDue)
		own := errors.New("of my own")
		_, err = p.begin(func(time.Time, time.Time) (time.Time, error) { return time.Time{}, own }, nil)
		wantErr(t, err, own)
		if _, err = p.begin(hourly, nil); err != nil {
			t.Error(err)
		}
		_, err = p.begin(func(last, _ time.Time) (time.Time, error) { return last, nil }, nil)
		wantErr(t, err, singleton.ErrNotDue)
		_, err = singleton.BeginSlot(t.Context(), p.Manager, nil, p.store, hourly)
		wantErr(t, err, singleton.ErrBadArgument)
		_, err = singleton.LatestSlot(nil, time.Time{}, time.Now())
		wantErr(t, err, singleton.ErrBadArgument)
		still := nextFunc(func(t time.Time) time.Time { return t })
		_, err = singleton.LatestSlot(still, time.Time{}, time.Now())
		wantErr(t, err, singleton.ErrBadSchedule)
	})
}
