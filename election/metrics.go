package election

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	leader     prometheus.Gauge
	term       prometheus.Gauge
	campaigns  prometheus.Counter
	lost       *prometheus.CounterVec
	keepAlive  prometheus.Histogram
	keepFailed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		leader: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_election_is_leader",
			Help: "1 while this node leads, else 0.",
		}),
		term: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_election_term",
			Help: "Number of the term this node led last, 0 if it never led.",
		}),
		campaigns: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_election_campaigns_total",
			Help: "Campaigns begun by this node.",
		}),
		lost: f.NewCounterVec(prometheus.CounterOpts{
			Name: "leaderd_election_terms_lost_total",
			Help: "Terms of this node that ended otherwise than by a resignation, by reason.",
		}, []string{"reason"}),
		keepAlive: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_election_keepalive_seconds",
			Help:    "Time from a keep-alive request of this node's lease to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 11), // 0.5 ms to 4.8 s
		}),
		keepFailed: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_election_keepalive_errors_total",
			Help: "Keep-alive requests of this node's lease that failed or were not answered in time.",
		}),
	}
	for _, r := range reasons {
		m.lost.WithLabelValues(string(r))
	}
	return m
}
