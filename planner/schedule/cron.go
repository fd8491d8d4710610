package schedule

// longestShift is the longest gap, in seconds, that counts as a clock change.
const longestShift = 3 * 3600

// longestOffset is longer, in seconds, than any zone was ever ahead of UTC or
// behind it.
const longestOffset = 16 * 3600

// cron is a cron expression in a zone. Its size matters: there is one for each
// schedule of each job.
type cron struct {
	set  fieldSet // and, in it, what clock changes mean
	zone *zone
}

// clock says what clock changes mean.
type clock struct {
	missing  Missing  // MissingSkip if the schedule keeps to real time
	repeated Repeated // RepeatedBoth if the schedule keeps to real time
}

// floor and ceil bound the local times that count in a period, [floor, ceil).

func (c *cron) floor(p period) int64 {
	if c.set.clock.repeated == RepeatedFirst && p.prev > p.off {
		return p.start + p.prev // the second pass ends where the first did
	}
	return p.start + p.off
}

func (c *cron) ceil(p period) int64 {
	if c.set.clock.repeated == RepeatedLast && p.next < p.off {
		return p.end + p.next // the first pass begins where the second will
	}
	return p.end + p.off
}

// makesUp reports whether the first instant of the period stands for local times
// lost in the gap before it.
func (c *cron) makesUp(p period) bool {
	gap := p.off - p.prev
	return c.set.clock.missing == MissingShift && gap > 0 && gap <= longestShift &&
		c.set.next(p.start+p.prev) < p.start+p.off
}

func (c *cron) next(t int64) int64 {
	p := c.zone.at(t + 1)
	if t < p.start && c.makesUp(p) {
		return p.start
	}
	since := t // the period is searched from here on
	local := c.set.next(max(t+1+p.off, c.floor(p)))
	for local != far {
		end := c.ceil(p)
		if local < end {
			return local - p.off
		}
		at := p.end
		if at-since > 2*longestOffset {
			// No clock shows the match, or anything later, so far before; and none of
			// the periods between can show again what was searched.
			at = max(at, local-longestOffset)
		}
		p = c.zone.at(at)
		since = p.start
		if c.makesUp(p) {
			return p.start
		}
		// The match stays good unless the clock went past it or back before it.
		if floor := c.floor(p); local < floor || floor < end {
			local = c.set.next(floor)
		}
	}
	return none
}

func (c *cron) prev(t int64) int64 {
	p := c.zone.at(t)
	local := c.set.prev(min(t+p.off, c.ceil(p)-1))
	for local != -far {
		if local >= c.floor(p) {
			return local - p.off
		}
		if c.makesUp(p) {
			return p.start
		}
		p = c.zone.at(p.start - 1)
		local = c.set.prev(c.ceil(p) - 1)
	}
	return none
}

func (c *cron) count(after, until int64) int64 {
	var n int64
	for p := c.zone.at(after + 1); ; p = c.zone.at(p.end) {
		n += c.set.count(max(after+1+p.off, c.floor(p)), min(until+1+p.off, c.ceil(p)))
		if after < p.start && c.makesUp(p) && c.set.next(p.start+p.off) != p.start+p.off {
			n++
		}
		if p.end > until {
			return n
		}
	}
}
