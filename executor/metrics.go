package executor

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/leaderd/leaderd/state"
)

type registrarMetrics struct {
	registrations prometheus.Counter
	fenced        prometheus.Counter
	keepAlive     prometheus.Histogram
	keepFailed    prometheus.Counter
}

func newRegistrarMetrics(reg prometheus.Registerer) *registrarMetrics {
	f := promauto.With(reg)
	return &registrarMetrics{
		registrations: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_registrations_total",
			Help: "Registrations of this node.",
		}),
		fenced: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_fenced_total",
			Help: "Registrations of this node that ended, or could no longer be trusted.",
		}),
		keepAlive: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_executor_keepalive_seconds",
			Help:    "Time from a keep-alive request of the registration to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 11), // 0.5 ms to 4.8 s
		}),
		keepFailed: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_keepalive_errors_total",
			Help: "Keep-alive requests of the registration that failed or were not answered in time.",
		}),
	}
}

type metrics struct {
	checkpoints prometheus.Counter
	starts      prometheus.Counter
	lateness    prometheus.Histogram
	running     prometheus.Gauge
	queued      prometheus.Gauge
	claim       prometheus.Histogram
	lead        prometheus.Gauge
	finished    [state.StateMissed + 1]prometheus.Counter
	retried     [state.StateMissed + 1]prometheus.Counter
	snoozed     prometheus.Counter
	hooks       map[bool]prometheus.Counter // by whether they ended well
	unstored    prometheus.Counter
	busy        prometheus.Counter
	refused     prometheus.Counter
	sessions    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		checkpoints: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_checkpoints_total",
			Help: "Checkpoints of work on this node that are stored.",
		}),
		starts: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_starts_total",
			Help: "Attempts whose work was started here.",
		}),
		lateness: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_executor_lateness_seconds",
			Help:    "Time from when an attempt was due to its start.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
		}),
		running: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_executor_running",
			Help: "Attempts whose work is going on.",
		}),
		queued: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_executor_queued",
			Help: "Planned entries that are not claimed.",
		}),
		claim: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "leaderd_executor_claim_seconds",
			Help:    "Time of a claim.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		lead: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_executor_lead_seconds",
			Help: "How long before its slot an entry is claimed at present.",
		}),
		unstored: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_unstored_total",
			Help: "Ended attempts whose end was not stored: fenced, or given up with the registration.",
		}),
		busy: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_busy_total",
			Help: "Entries that were due and found no room.",
		}),
		refused: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_refused_total",
			Help: "Claims that ended in an error.",
		}),
		sessions: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_executor_sessions_total",
			Help: "Sessions that a leader opened.",
		}),
	}
	finished := f.NewCounterVec(prometheus.CounterOpts{
		Name: "leaderd_executor_finished_total",
		Help: "Attempts that ended here and whose end is stored, by how; waiting: to be tried again.",
	}, []string{"state"})
	for s := range m.finished {
		st := state.RunState(s)
		if st == state.StateWaiting || state.CheckTransition(state.StateRunning, st) == nil && st != state.StateLost {
			m.finished[s] = finished.WithLabelValues(st.String())
		}
	}
	retried := f.NewCounterVec(prometheus.CounterOpts{
		Name: "leaderd_executor_retried_total",
		Help: "Attempts that ended here and that another one follows, by how they ended; snoozed: the work asked to be called again.",
	}, []string{"after"})
	for _, s := range []state.RunState{state.StateFailed, state.StateTimedOut, state.StateInterrupted} {
		m.retried[s] = retried.WithLabelValues(s.String())
	}
	m.snoozed = retried.WithLabelValues("snoozed")
	hooks := f.NewCounterVec(prometheus.CounterOpts{
		Name: "leaderd_executor_hooks_total",
		Help: "Hooks that were due here, by whether they ended well; failed ones may not have run.",
	}, []string{"result"})
	m.hooks = map[bool]prometheus.Counter{true: hooks.WithLabelValues("succeeded"), false: hooks.WithLabelValues("failed")}
	return m
}
