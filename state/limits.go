package state

import "time"

// Limits, enforced where a request comes in and named in the error.
const (
	MaxNameBytes      = 128
	MaxLabels         = 32
	MaxLabelBytes     = 128
	MaxSchedules      = 16
	MaxScheduleBytes  = 512
	MaxDescription    = 1024
	MaxReasonBytes    = 512
	MaxDetailBytes    = 1 << 10
	MaxArgs           = 256
	MaxCommandBytes   = 64 << 10
	MaxEnv            = 128
	MaxHTTPHeaders    = 64
	MaxURLBytes       = 4096
	MaxConcurrent     = 1000
	MaxQueue          = 1000
	MaxShards         = 1000
	MaxConcurrencyKey = 128
	MaxBodyBytes      = 256 << 10
	MaxSpecBytes      = 512 << 10
	MaxTailBytes      = 8 << 10
	MaxErrorBytes     = 1 << 10
	MaxCheckpoint     = 256 << 10
	// MaxCheckpointsKept bounds CheckpointPolicy.Keep.
	MaxCheckpointsKept = 20
	// MaxProgressMessage bounds what a run says of its progress.
	MaxProgressMessage = 256
	MaxTimeout         = 7 * 24 * time.Hour
	MaxKillGrace       = 10 * time.Minute
	MaxStartDeadline   = 366 * 24 * time.Hour
	MaxVersionsKept    = 50
	MaxCapacity        = 1 << 20
	MaxAttemptRecords  = 20
	MaxSlotWindow      = 366 * 24 * time.Hour
	MaxSimulatedSlots  = 10_000
	// MaxBackfillSlots, MaxBackfillWindow and MaxBackfillConcurrency bound one
	// backfill, MaxBackfillsActive those of a job that are under way, and
	// MaxBackfillsKept those that have ended.
	MaxBackfillSlots       = 10_000
	MaxBackfillWindow      = 3660 * 24 * time.Hour
	MaxBackfillConcurrency = 32
	MaxBackfillsActive     = 8
	MaxBackfillsKept       = 20
	// MaxShardParams bounds the parameters of one shard, MaxShardParamName the name
	// of each, MaxShardParamBytes all of a job's together.
	MaxShardParams     = 16
	MaxShardParamName  = 64
	MaxShardParamBytes = 64 << 10
	// MaxShardTail is how much of its output's end a shard's record keeps.
	MaxShardTail = 1 << 10
	// MaxPause is how far ahead a pause may end by itself.
	MaxPause = 3660 * 24 * time.Hour
	// MaxPauseAfterFailures bounds JobSpec.PauseAfterFailures.
	MaxPauseAfterFailures = 100
	MaxJitter             = time.Hour
	// MaxAttempts bounds Retry.MaxAttempts, MaxBackoff and MaxBackoffFactor the waits
	// between attempts, MaxRetryAfter the wait that work
	// asks for, MaxRetryConditions each of the lists of what is retried.
	MaxAttempts        = 100
	MaxBackoff         = 24 * time.Hour
	MaxBackoffFactor   = 10
	MaxRetryAfter      = 24 * time.Hour
	MaxRetryConditions = 32
	// MaxHandovers is how many attempts of a run may end since their executors are
	// lost or shut down; MaxSnoozes is how often one may snooze, for at most
	// MaxSnooze.
	MaxHandovers  = 100
	MaxSnoozes    = 1000
	MaxSnooze     = 30 * 24 * time.Hour
	MaxRunTimeout = 30 * 24 * time.Hour
	// MaxDoubles bounds Record.Doubles.
	MaxDoubles = 8
	// MaxJobLimits bounds JobSpec.Limits, MaxWeight JobSpec.Weight. The others bound a
	// Rate.
	MaxJobLimits = 4
	// MaxLimitKey bounds the key of limits that are per key.
	MaxLimitKey  = 128
	MaxWeight    = 100
	MaxRateRuns  = 1_000_000
	MaxRateBurst = 10_000
	MaxRatePer   = 24 * time.Hour
	// MaxResources bounds the names of a node's or a job's Resources, MaxResource each
	// amount.
	MaxResources = 16
	MaxResource  = 1 << 20
	// MaxAdhocJobs is how many jobs there may be that submissions made, and
	// MaxAdhocSpecBytes bounds the spec of each: it is stored twice, beside the payload, in
	// one transaction.
	MaxAdhocJobs      = 10_000
	MaxAdhocSpecBytes = 128 << 10
	// MaxDeadLetters bounds the dead letters of a job.
	MaxDeadLetters  = 10_000
	MaxCatchUpLimit = 1000
	// MaxJobCalendars bounds the calendars that a job names.
	MaxJobCalendars    = 4
	MaxCalendarEntries = 500
	MaxCalendarBytes   = 16 << 10
	MaxEntryName       = 128
)
