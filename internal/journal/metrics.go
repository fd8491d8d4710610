package journal

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	streams  prometheus.Gauge
	inFlight prometheus.Gauge
	entries  prometheus.Counter
	batch    prometheus.Histogram
	failed   *prometheus.CounterVec
	panics   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		streams: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_journal_streams",
			Help: "Record streams of executors.",
		}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_journal_in_flight_entries",
			Help: "Entries of Record streams that are begun and not yet answered.",
		}),
		entries: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_journal_entries_total",
			Help: "Entries that came in on Record streams.",
		}),
		batch: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_journal_batch_entries",
			Help:    "Entries in a message of a Record stream.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		failed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "leaderd_journal_failed_total",
			Help: "Requests and entries that were answered with an error, by code.",
		}, []string{"code"}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_journal_panics_total",
			Help: "Entries whose handling panicked.",
		}),
	}
}
