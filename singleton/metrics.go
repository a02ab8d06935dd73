package singleton

import "mongodlm/internal/metrics"

func (r *runner) told() metrics.Observer { return metrics.Of(r.manager.Config().Observer) }

func (r *runner) labels() []string { return []string{string(r.kind), r.name} }

// beginRound reports the beginning of a round. The returned function reports the round's end.
func (r *runner) beginRound() (over func(error)) {
	labels, began := r.labels(), r.clock.Now().Mono
	r.told().Sampled(metrics.Sample{Metric: metrics.Begun, Labels: labels, Value: 1})
	return func(err error) {
		now, outcome := r.clock.Now(), "done"
		if err != nil {
			outcome = "failed"
		}
		r.told().Sampled(
			metrics.Sample{Metric: metrics.Rounds, Labels: append([]string{outcome}, labels...), Value: 1},
			metrics.Sample{Metric: metrics.RoundTime, Labels: labels, Value: (now.Mono - began).Seconds()},
			metrics.Sample{Metric: metrics.LastRound, Labels: labels,
				Value: float64(now.Wall.UnixMilli()) / 1e3})
	}
}
