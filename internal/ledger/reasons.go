package ledger

import "github.com/leaderd/leaderd/state"

// Reason says what a reason of a verdict means and what to do about it.
type Reason struct {
	// Name is what records have.
	Name string
	// Means is a clause such as "no executor attended the leader".
	Means string
	// Do is advice, a sentence.
	Do string
}

// Reasons are those of all verdicts that are no end of work, those for which work that
// went wrong was not tried again, and the verdict lost, which mostly has no reason
// beside it.
func Reasons() []Reason {
	return []Reason{
		{state.StateLost.String(), "the executor that had claimed it vanished, the work may have run in part or in full, and the job is at_most_once, so that it does not start again", "Look at what the work did; trigger a run if it is to be done again."},
		{state.ReasonOverlap, "as many runs were live as the job, or its concurrencyKey, may have, and its overlap policy let no other start or wait; of a run that was cancelled: a newer one was due, and the policy is cancel", "Make the work shorter or the schedule wider, set a timeout, or choose another overlap policy."},
		{state.ReasonCircuitOpen, "runs of the job, or of others with its target, had failed, and its circuit breaker lets none start for a while; the detail says until when and why", "Look at the runs that failed. job reset-circuit lets runs start at once; else one starts as a probe after the cool-down."},
		{state.ReasonReplaced, "it waited for other runs, and a newer one took its place, as the job's overlap policy has it", "None, unless each is to run: then overlap: queue."},
		{state.ReasonRequested, "somebody asked for the run's end; the detail says who and why", "None."},
		{state.ReasonQueued, "the run waits for other runs, as the job's overlap policy has it, or for room at one of its limits", "Wait, or cancel what is live."},
		{state.ReasonCalendar, "a calendar of the job excludes it", "Nothing if that is meant; the detail names the calendar and the entry."},
		{state.ReasonDST, "it stands for a local time that the clock left out, and the job skips those", "Nothing if that is meant; missingTime: shift runs it right after the gap."},
		{state.ReasonPaused, "the job was paused after the slot was due, before it started", "Resume the job; slots of a pause are not caught up."},
		{state.ReasonSuperseded, "the job was edited after the slot was due, before it started", "Nothing: the new version's slots count. Trigger a run if this one is needed."},
		{state.ReasonDeleted, "the job was deleted before the run started", "Nothing, or put the job again."},
		{state.ReasonBackfill, "its backfill was cancelled before it started, or with the runs that were under way", "Nothing, or make another backfill of what is missing."},
		{state.ReasonShardFailed, "other shards of the run had failed, so that it could not succeed any more, and the job stops the others then", "Look at the shards that failed: run shards."},
		{state.ReasonNodeGone, "the shard of a broadcast was for a node that is gone", "Trigger a run once the node is back, if its shard is needed."},
		{state.ReasonInvalidJob, "the stored job is broken", "Put the job again; job get says what is wrong."},
		{state.ReasonUnreadable, "the record of the job's last run cannot be read", "Delete the key that job get names, once no run of the job is at work."},
		{state.ReasonDeadline, "it had not started when its start deadline was over; the detail says what kept it", "Do away with what kept it. A longer startDeadline lets it start later."},
		{state.ReasonOutage, "no node led for longer than the horizon, or all were down", "Look at the leader's log for that time. catchUp says whether the latest such slot runs late."},
		{state.ReasonNoExecutor, "no executor attended the leader", "Start a node with the role executor; look at its log if there is one."},
		{state.ReasonNoMatchingNode, "no executor has the labels of the job's nodeSelector and as much as its resources say", "Compare nodeSelector and resources with what cluster status shows."},
		{state.ReasonNoCapacity, "the executors that may run it were full", "Raise their capacity, add one, or spread the schedules."},
		{state.ReasonRefused, "executors asked for the claim, and etcd took none or did not answer", "Look at etcd: its quota, its disk, its leader."},
		{state.ReasonAttempts, "it had as many attempts as it may have", "Look at what went wrong; retry.maxAttempts allows more."},
		{state.ReasonNotRetried, "the job's retry.retryOn does not have what went wrong", "Look at what went wrong; add it to retryOn if to try again may help."},
		{state.ReasonGivenUp, "the job's retry.giveUpOn has what went wrong", "Look at what went wrong."},
		{state.ReasonPermanent, "the work said that to try again is of no use", "Look at what went wrong."},
		{state.ReasonRunTimeout, "the job's runTimeout, which counts over all attempts and the waits between them, was over, or would have been before the next attempt", "Make the work shorter, or raise runTimeout."},
		{state.ReasonStartedOnce, "the work asked to be called again, and the job is at_most_once", "Have the work not snooze, or choose guarantee: at_least_once."},
		{state.ReasonQueueTimeout, "it waited for other runs for longer than the job's queueTimeout", "Make the work shorter or the schedule wider; a longer queueTimeout lets it wait."},
		{state.ReasonUnclaimed, "an executor had it in its plan and did not claim it", "Look at the log of that executor, and at its clock."},
	}
}

// reasonOf is the reason of a name; ok is false for one that is not known here.
func reasonOf(name string) (Reason, bool) {
	for _, r := range Reasons() {
		if r.Name == name {
			return r, true
		}
	}
	return Reason{}, false
}
