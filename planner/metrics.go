package planner

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	horizon      prometheus.Gauge
	open         prometheus.Gauge
	waiting      prometheus.Gauge
	sessions     prometheus.Gauge
	watermarkLag prometheus.Gauge
	takeover     prometheus.Gauge
	planned      prometheus.Counter
	hedges       prometheus.Counter
	lost         prometheus.Counter
	decided      *prometheus.CounterVec
	concluded    *prometheus.CounterVec
	unreadable   *prometheus.CounterVec
	deadDropped  prometheus.Counter
	chained      prometheus.Counter
	badGates     prometheus.Gauge
	skew         prometheus.Gauge

	removed, packed, sweepErrors, cuts prometheus.Counter
	sweepRound, records, oldest        prometheus.Gauge
	storeUsed, storeBudget, storeFull  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		horizon: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_horizon_seconds",
			Help: "How far ahead the timeline is planned; shorter than configured where max_planned bites.",
		}),
		open: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_open_entries",
			Help: "Planned entries that are not known to have a record.",
		}),
		waiting: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_waiting_runs",
			Help: "Runs that wait for others, or for room at a limit.",
		}),
		sessions: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_sessions",
			Help: "Executors that attend this leader.",
		}),
		watermarkLag: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_watermark_lag_seconds",
			Help: "How far the watermark is behind the clock.",
		}),
		takeover: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_takeover_seconds",
			Help: "From the newest term's beginning to its planning.",
		}),
		planned: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_planned_total",
			Help: "Entries planned onto executors, hedges included.",
		}),
		hedges: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_hedges_total",
			Help: "Late entries that were planned onto one more executor.",
		}),
		lost: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_lost_total",
			Help: "Live runs whose executor's registration ended.",
		}),
		decided: f.NewCounterVec(prometheus.CounterOpts{
			Name: "leaderd_planner_decided_total",
			Help: "Slots that got a verdict in place of a start.",
		}, []string{"verdict", "reason"}),
		concluded: f.NewCounterVec(prometheus.CounterOpts{
			Name: "leaderd_planner_concluded_total",
			Help: "Runs of several shards that got their verdict.",
		}, []string{"verdict"}),
		unreadable: f.NewCounterVec(prometheus.CounterOpts{
			Name: "leaderd_planner_unreadable_total",
			Help: "Times that a key of the leader's alone could not be read and was written anew.",
		}, []string{"key"}),
		deadDropped: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_dead_letters_dropped_total",
			Help: "Dead letters that were dropped since their jobs keep no more of them.",
		}),
		chained: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_chained_total",
			Help: "Runs that were made after the ends of runs of other jobs.",
		}),
		badGates: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_unreadable_gates",
			Help: "Jobs that stand still because the record at their gate cannot be read.",
		}),
		skew: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_clock_skew_seconds",
			Help: "How far the clocks of executors that attend this leader are from its own at most, either way.",
		}),

		removed: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_history_removed_total",
			Help: "Verdicts that retention removed.",
		}),
		packed: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_history_packed_total",
			Help: "Verdicts that were packed into segments.",
		}),
		sweepErrors: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_history_errors_total",
			Help: "Times that the history of a job could not be swept.",
		}),
		cuts: f.NewCounter(prometheus.CounterOpts{
			Name: "leaderd_planner_history_cuts_total",
			Help: "Rounds in which history was removed before its jobs' limits, since the store was beyond its budget.",
		}),
		sweepRound: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_history_round_seconds",
			Help: "How long the last look at the history of all jobs took.",
		}),
		records: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_history_records",
			Help: "Verdicts that the last look at the history of all jobs found.",
		}),
		oldest: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_history_oldest_seconds",
			Help: "How far back the oldest of those runs lies.",
		}),
		storeUsed: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_store_used_bytes",
			Help: "What the store has in use.",
		}),
		storeBudget: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_store_budget_bytes",
			Help: "Beyond how much in use the oldest history goes first.",
		}),
		storeFull: f.NewGauge(prometheus.GaugeOpts{
			Name: "leaderd_planner_store_full",
			Help: "1 while the store refuses writes for want of room.",
		}),
	}
}
