package schedule

import (
	"fmt"
	"time"
)

// Missing says what becomes of a local time that the zone's clock skips.
type Missing uint8

const (
	// MissingShift runs it at the first instant after the gap. The default.
	MissingShift Missing = iota
	// MissingSkip does not run it.
	MissingSkip
)

// Repeated says in which pass a local time runs that occurs twice.
type Repeated uint8

const (
	// RepeatedFirst runs it the first time only. The default.
	RepeatedFirst Repeated = iota
	// RepeatedLast runs it the second time only.
	RepeatedLast
	// RepeatedBoth runs it both times.
	RepeatedBoth
)

// Options are what a schedule needs beside its text. The zero value is valid.
type Options struct {
	// Zone is the IANA zone in which a cron expression is read, spelled exactly.
	// Empty means UTC. A text with its own CRON_TZ= or TZ= is refused unless Zone
	// is empty or UTC. @every and @at do not depend on it.
	Zone string
	// Anchor is the instant from which @every counts, cut to the whole second. It
	// is itself a slot, the first one. The zero time means the Unix epoch.
	Anchor time.Time
	// Job is what H takes its values from: the job's id, "namespace/name". Whatever
	// it is, a text is refused or not. Empty is an id like any other.
	Job string
	// Missing and Repeated rule cron expressions whose hour field does not begin
	// with * or H/; see the package comment. Defaults: shift and first.
	Missing  Missing
	Repeated Repeated
	// Zones loads zones from other data than the program's, to compare the two. It
	// need not be quick. Default: the program's own.
	Zones func(name string) (*time.Location, error)
}

// table is the table of a zone, by the data that the options name.
func (o Options) table(name string) (*zone, error) {
	if o.Zones == nil {
		return zoneOf(name)
	}
	if _, err := zoneOf(name); err != nil {
		return nil, err // with the hint at what was meant
	}
	loc, err := o.Zones(name)
	if err != nil {
		return nil, fmt.Errorf("zone %s: %w", name, err)
	}
	return newZone(loc), nil
}

// zone is the zone's name with the default.
func (o Options) zone() string {
	if o.Zone == "" {
		return "UTC"
	}
	return o.Zone
}

func (o Options) validate() error {
	if o.Missing > MissingSkip {
		return fmt.Errorf("missing: no such policy: %d", o.Missing)
	}
	if o.Repeated > RepeatedBoth {
		return fmt.Errorf("repeated: no such policy: %d", o.Repeated)
	}
	return nil
}
