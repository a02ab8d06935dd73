package metrics_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/metrics"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// Each function is called at most once in AskedEvery, however often the metrics are read.
func TestAsked_ReadOften_AsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a metrics.Asked
		var names metrics.Names
		asked := 0
		sample := func(n float64) []metrics.Sample {
			return []metrics.Sample{{Metric: metrics.Rows, Labels: []string{"ready", "jobs"}, Value: n}}
		}
		stop := a.Asks(func(context.Context) []metrics.Sample { asked++; return sample(float64(asked)) })
		a.Asks(func(context.Context) []metrics.Sample { return sample(0) })
		a.Asks(func(context.Context) []metrics.Sample { panic("ouch") })
		for range 60 {
			if all := a.All(t.Context(), &names); len(all) != 1 || all[0].Value != float64(asked) {
				t.Fatalf("shown: %v", all)
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, asked, 4, "asked %d times a minute, want %d")
		stop()
		if all := a.All(t.Context(), &names); len(all) != 1 || all[0].Value != 0 {
			t.Errorf("shown after the end: %v", all)
		}
	})
}

// If a registered function blocks until its context ends, the method All returns after AskTimeout.
func TestAsked_Hangs_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a metrics.Asked
		a.Asks(func(ctx context.Context) []metrics.Sample { <-ctx.Done(); return nil })
		began := time.Now()
		a.All(t.Context(), &metrics.Names{})
		assert.Equal(t, time.Since(began), metrics.AskTimeout, "it took %v, want %v")
	})
}

// Names shows the first MostNames names, and replaces all others by the empty name.
func TestNames_TooMany_AreTogether(t *testing.T) {
	t.Parallel()
	var n metrics.Names
	shown := map[string]int{}
	for range 2 {
		for i := range 1000 {
			shown[n.Shown(metrics.Sample{Labels: []string{"election", fmt.Sprint(i)}})[1]]++
		}
	}
	if len(shown) != metrics.MostNames+1 || shown[""] != 2*(1000-metrics.MostNames) {
		t.Errorf("%d names, %d samples without a name", len(shown), shown[""])
	}
}
