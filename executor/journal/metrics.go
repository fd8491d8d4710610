package journal

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	batch     prometheus.Histogram
	failovers prometheus.Counter
	resent    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		batch: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_executor_journal_batch_entries",
			Help:    "Entries in a message to a control node.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		failovers: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_journal_failovers_total",
			Help: "Journal streams that ended, after each of which the next control node is asked.",
		}),
		resent: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_journal_resent_total",
			Help: "Entries that were sent again after their stream had ended.",
		}),
	}
}
