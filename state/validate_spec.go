package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ScheduleChecks are the rules on schedules, which this package does not know.
// Both functions say what is wrong, or answer nil; both must be set.
type ScheduleChecks struct {
	// Zone checks the name of a time zone.
	Zone func(zone string) error
	// Schedule checks the text of one schedule in a zone that Zone allows.
	Schedule func(text, zone string) error
}

// Validate answers Violations with everything that is wrong with the spec, or
// nil. Unset fields are allowed and mean their defaults; a target is required.
func (s *JobSpec) Validate(checks ScheduleChecks) error {
	var v Violations
	if n := len(s.Description); n > MaxDescription {
		v.Add("spec.description", "has %d bytes; at most %d are allowed", n, MaxDescription)
	}
	checkLabels(&v, "spec.labels", s.Labels)
	s.checkSchedules(&v, checks)
	s.checkSlots(&v)
	s.checkOverlap(&v)
	checkDuration(&v, "spec.startDeadline", s.StartDeadline, time.Second, MaxStartDeadline)
	s.checkPlacing(&v)
	checkDuration(&v, "spec.timeout", s.Timeout, time.Millisecond, MaxTimeout)
	checkDuration(&v, "spec.killGrace", s.KillGrace, time.Millisecond, MaxKillGrace)
	if n := s.PauseAfterFailures; n < 0 || n > MaxPauseAfterFailures {
		v.Add("spec.pauseAfterFailures", "%d is outside 0–%d; 0 means never", n, MaxPauseAfterFailures)
	}
	s.checkCheckpoint(&v)
	s.checkOutage(&v)
	s.checkRetry(&v)
	s.checkRetention(&v)
	s.checkLimits(&v)
	if s.CircuitBreaker != nil {
		s.CircuitBreaker.check(&v)
	}
	s.checkHooks(&v)
	s.checkAfter(&v)
	s.checkTarget(&v)
	if s.Shards != nil {
		s.Shards.check(&v, s)
	}
	return v.Err()
}

func (s *JobSpec) checkSchedules(v *Violations, checks ScheduleChecks) {
	if n := len(s.Schedules); n > MaxSchedules {
		v.Add("spec.schedules", "has %d entries; at most %d are allowed", n, MaxSchedules)
	}
	// With a bad zone every schedule would be refused for the same reason.
	zone := s.TimeZone
	var zoneErr error
	if zone != "" {
		zoneErr = checks.Zone(zone)
	}
	for i, text := range s.Schedules {
		field := fmt.Sprintf("spec.schedules[%d]", i)
		if n := len(text); n > MaxScheduleBytes {
			v.Add(field, "has %d bytes; at most %d are allowed", n, MaxScheduleBytes)
			continue
		}
		if zoneErr != nil {
			continue
		}
		if err := checks.Schedule(text, zone); err != nil {
			v.Add(field, "%s", err)
		}
	}
	if zoneErr != nil {
		v.Add("spec.timeZone", "%s", zoneErr)
	}
}

// checkSlots looks at what changes the slots that the schedules name.
func (s *JobSpec) checkSlots(v *Violations) {
	if !s.Start.IsZero() && !s.End.IsZero() && !s.Start.Before(s.End) {
		v.Add("spec.endTime", "%s is not after startTime, %s", s.End.Format(time.RFC3339Nano), s.Start.Format(time.RFC3339Nano))
	}
	checkDuration(v, "spec.jitter", s.Jitter, time.Millisecond, MaxJitter)
	if s.Jitter%time.Millisecond != 0 {
		v.Add("spec.jitter", "%s is no whole number of milliseconds", s.Jitter)
	}
	checkDuration(v, "spec.catchUpWindow", s.CatchUpWindow, time.Second, MaxStartDeadline)
	if s.CatchUpLimit < 0 || s.CatchUpLimit > MaxCatchUpLimit {
		v.Add("spec.catchUpLimit", "%d is outside 1–%d", s.CatchUpLimit, MaxCatchUpLimit)
	}
	if n := len(s.ExcludedCalendars) + len(s.OnlyCalendars); n > MaxJobCalendars {
		v.Add("spec.excludedCalendars", "and onlyCalendars name %d calendars together; at most %d are allowed", n, MaxJobCalendars)
		return
	}
	seen := map[string]string{}
	for _, list := range []struct {
		field string
		names []string
	}{{"spec.excludedCalendars", s.ExcludedCalendars}, {"spec.onlyCalendars", s.OnlyCalendars}} {
		for i, name := range list.names {
			field := fmt.Sprintf("%s[%d]", list.field, i)
			if why := CheckName(name); why != "" {
				v.Add(field, "calendar %s", why)
			} else if first, twice := seen[name]; twice {
				v.Add(field, "%q is named by %s already", name, first)
			} else {
				seen[name] = field
			}
		}
	}
}

// Calendars are the names of all calendars that the spec names.
func (s *JobSpec) Calendars() []string {
	return slices.Concat(s.ExcludedCalendars, s.OnlyCalendars)
}

func (s *JobSpec) checkOverlap(v *Violations) {
	switch n := s.MaxConcurrent; {
	case n < 0 || n > MaxConcurrent:
		v.Add("spec.maxConcurrent", "%d is outside 1–%d", n, MaxConcurrent)
	case n > 1 && s.Overlap == OverlapCancel:
		v.Add("spec.maxConcurrent", "%d is not allowed where overlap is cancel, which stops the one live run; leave it out", n)
	}
	switch n := s.QueueLimit; {
	case n < 0 || n > MaxQueue:
		v.Add("spec.queueLimit", "%d is outside 1–%d", n, MaxQueue)
	case n > 0 && s.Overlap != OverlapQueue:
		v.Add("spec.queueLimit", "is only allowed where overlap is queue, not %s", s.Overlap)
	}
	const field = "spec.concurrencyKey"
	switch n := len(s.ConcurrencyKey); {
	case n == 0:
	case n > MaxConcurrencyKey:
		v.Add(field, "has %d bytes; at most %d are allowed", n, MaxConcurrencyKey)
	case strings.ContainsFunc(s.ConcurrencyKey, unicode.IsControl):
		v.Add(field, "contains a control character, such as a tab or a newline")
	case !utf8.ValidString(s.ConcurrencyKey):
		v.Add(field, "is no UTF-8 text")
	case s.Limit() == 0:
		v.Add(field, "needs a limit where overlap is allow: set maxConcurrent to 1–%d", MaxConcurrent)
	}
}

func (s *JobSpec) checkTarget(v *Violations) {
	n := 0
	if s.Command != nil {
		n++
		s.Command.validate(v)
	}
	if s.HTTP != nil {
		n++
		s.HTTP.validate(v)
	}
	if s.NoOp {
		n++
	}
	if n != 1 {
		v.Add("spec", "has %d targets; exactly one of command, http and noop is required", n)
	}
}

func (c *Command) validate(v *Violations) {
	switch {
	case len(c.Argv) == 0 && c.Shell == "":
		v.Add("spec.command", "runs nothing; exactly one of argv and shell is required")
	case len(c.Argv) > 0 && c.Shell != "":
		v.Add("spec.command", "has both argv and shell; exactly one of them is allowed")
	}
	if n := len(c.Argv); n > MaxArgs {
		v.Add("spec.command.argv", "has %d entries; at most %d are allowed", n, MaxArgs)
	}
	total := 0
	for i, arg := range c.Argv {
		total += len(arg) + 1
		field := fmt.Sprintf("spec.command.argv[%d]", i)
		if i == 0 && arg == "" {
			v.Add(field, "is empty; it must name the program")
		}
		checkNoNUL(v, field, arg)
	}
	if total > MaxCommandBytes {
		v.Add("spec.command.argv", "has %d bytes together; at most %d are allowed", total, MaxCommandBytes)
	}
	if n := len(c.Shell); n > MaxCommandBytes {
		v.Add("spec.command.shell", "has %d bytes; at most %d are allowed", n, MaxCommandBytes)
	}
	checkNoNUL(v, "spec.command.shell", c.Shell)
	c.checkEnv(v)
	if c.Dir != "" && !strings.HasPrefix(c.Dir, "/") {
		v.Add("spec.command.dir", "%q is relative; an absolute path is required", clip(c.Dir))
	}
	if n := len(c.Dir); n > MaxURLBytes {
		v.Add("spec.command.dir", "has %d bytes; at most %d are allowed", n, MaxURLBytes)
	}
	checkNoNUL(v, "spec.command.dir", c.Dir)
}

func (c *Command) checkEnv(v *Violations) {
	const field = "spec.command.env"
	if n := len(c.Env); n > MaxEnv {
		v.Add(field, "has %d entries; at most %d are allowed", n, MaxEnv)
	}
	total := 0
	for _, name := range sortedKeys(c.Env) {
		value := c.Env[name]
		total += len(name) + len(value) + 2
		switch {
		case name == "":
			v.Add(field, "has an entry without a name")
		case !isEnvName(name):
			v.Add(field, "name %q is not allowed; letters, digits and '_' are, not beginning with a digit", clip(name))
		case strings.HasPrefix(name, "LEADERD_"):
			v.Add(field, "name %q is not allowed; names that begin with LEADERD_ are leaderd's", clip(name))
		}
		checkNoNUL(v, field, value)
	}
	if total > MaxCommandBytes {
		v.Add(field, "has %d bytes together; at most %d are allowed", total, MaxCommandBytes)
	}
}

func isEnvName(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c != '_' && !isAlnum(c) || i == 0 && '0' <= c && c <= '9' {
			return false
		}
	}
	return name != ""
}

// checkLabels applies to a job's labels and its node selector alike.
func checkLabels(v *Violations, field string, labels map[string]string) {
	if n := len(labels); n > MaxLabels {
		v.Add(field, "has %d entries; at most %d are allowed", n, MaxLabels)
	}
	for _, key := range sortedKeys(labels) {
		if why := CheckLabel(key, labels[key]); why != "" {
			v.Add(field, "%s", why)
		}
	}
}

// CheckLabel says what is wrong with a label of a job or a node, or with an
// entry of a node selector; the empty string means that it is allowed.
func CheckLabel(key, value string) string {
	const allowed = "letters, digits, '-', '_', '.' and '/', beginning with a letter or a digit"
	switch {
	case key == "":
		return fmt.Sprintf("has an empty key; allowed are 1–%d bytes of %s", MaxLabelBytes, allowed)
	case len(key) > MaxLabelBytes:
		return fmt.Sprintf("key %q has %d bytes; at most %d are allowed", clip(key), len(key), MaxLabelBytes)
	case len(value) > MaxLabelBytes:
		return fmt.Sprintf("value of %q has %d bytes; at most %d are allowed", key, len(value), MaxLabelBytes)
	case !isAlnum(key[0]):
		return fmt.Sprintf("key %q begins with %q; allowed are %s", key, firstRune(key), allowed)
	case strings.ContainsAny(value, "\t\n") || strings.ContainsFunc(value, isControl):
		return fmt.Sprintf("value of %q contains a control character", key)
	}
	for i := 0; i < len(key); i++ {
		if !isAlnum(key[i]) && !strings.ContainsRune("-_./", rune(key[i])) {
			return fmt.Sprintf("key %q contains %q; allowed are %s", key, firstRune(key[i:]), allowed)
		}
	}
	return ""
}

// checkDuration leaves 0 alone: it means the default.
func checkDuration(v *Violations, field string, d, least, most time.Duration) {
	if d != 0 && (d < least || d > most) {
		v.Add(field, "%s is outside %s–%s", d, least, most)
	}
}

func checkNoNUL(v *Violations, field, text string) {
	if strings.IndexByte(text, 0) >= 0 {
		v.Add(field, "contains a NUL byte")
	}
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
