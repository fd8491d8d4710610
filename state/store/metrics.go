package store

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/leaderd/leaderd/state"
)

type metrics struct {
	batchSize     prometheus.Histogram
	commitSeconds prometheus.Histogram
	retries       *prometheus.CounterVec
	claims        [state.ClaimQueued + 1]prometheus.Counter
	finishes      [state.TokenFenced + 1]prometheus.Counter
	circuits      [state.CircuitHalfOpen + 1]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		batchSize: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_store_batch_requests",
			Help:    "Requests in a group-commit transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 8),
		}),
		commitSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_store_commit_seconds",
			Help:    "Time of a group-commit transaction.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		retries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "leaderd_store_commit_retries_total",
			Help: "Group-commit transactions that were sent again, by cause.",
		}, []string{"cause"}),
	}
	claims := f.NewCounterVec(prometheus.CounterOpts{
		Name: "leaderd_store_claims_total",
		Help: "Answered claims, by what became of them.",
	}, []string{"status"})
	for s := range m.claims {
		m.claims[s] = claims.WithLabelValues(state.ClaimStatus(s).String())
	}
	finishes := f.NewCounterVec(prometheus.CounterOpts{
		Name: "leaderd_store_finishes_total",
		Help: "Answered finishes, by whether the token still stood.",
	}, []string{"status"})
	for s, name := range [...]string{"unknown", "stored", "fenced"} {
		m.finishes[s] = finishes.WithLabelValues(name)
	}
	circuits := f.NewCounterVec(prometheus.CounterOpts{
		Name: "leaderd_store_circuits_total",
		Help: "Changes of circuits that this node made, by what they became.",
	}, []string{"state"})
	for s := range m.circuits {
		m.circuits[s] = circuits.WithLabelValues(state.CircuitState(s).String())
	}
	return m
}
