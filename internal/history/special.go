package history

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Names of the day fields.
const (
	dayOfMonth = "day of month"
	dayOfWeek  = "day of week"
)

// date is a date, and how long its month is.
type date struct {
	month, day, weekday, length int
}

func dateOf(t time.Time) date {
	year, month, day := t.Date()
	return date{
		month: int(month), day: day, weekday: int(t.Weekday()),
		length: time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day(),
	}
}

// of is the weekday of a day of the same month.
func (d date) of(day int) int { return ((d.weekday+day-d.day)%7 + 7) % 7 }

func (d date) works(day int) bool {
	w := d.of(day)
	return 1 <= day && day <= d.length && w != 0 && w != 6
}

// serves tells whether the date is the working day nearest to a day of its month.
func (d date) serves(day int) bool {
	for distance := range 3 {
		if d.works(day - distance) {
			return d.day == day-distance
		}
		if d.works(day + distance) {
			return d.day == day+distance
		}
	}
	return false
}

// addDay takes L, L-n, LW and nW of the field of days; found tells whether it was
// one.
func (c *cron) addDay(item string) (found bool, err error) {
	var is func(date) bool
	back, fromEnd := strings.CutPrefix(item, "L-")
	near, working := strings.CutSuffix(item, "W")
	switch {
	case item == "L":
		is = func(d date) bool { return d.day == d.length }
	case item == "LW":
		is = func(d date) bool { return d.serves(d.length) }
	case fromEnd:
		n, err := strconv.Atoi(back)
		if err != nil {
			return false, fmt.Errorf("day %q", item)
		}
		is = func(d date) bool { return d.day == d.length-n }
	case working:
		n, err := strconv.Atoi(near)
		if err != nil {
			return false, fmt.Errorf("day %q", item)
		}
		is = func(d date) bool { return n <= d.length && d.serves(n) }
	default:
		return false, nil
	}
	c.monthDays = append(c.monthDays, is)
	return true, nil
}

// addWeekday takes n#k and nL of the field of weekdays.
func (c *cron) addWeekday(item string) (found bool, err error) {
	name, count, numbered := strings.Cut(item, "#")
	last := false
	if !numbered {
		if name, last = strings.CutSuffix(item, "L"); !last {
			return false, nil
		}
	}
	w, err := value(name, weekdays)
	if err != nil || w > 7 {
		return false, fmt.Errorf("weekday %q", item)
	}
	is := func(d date) bool { return d.weekday == w%7 && d.day+7 > d.length }
	if numbered {
		k, err := strconv.Atoi(count)
		if err != nil {
			return false, fmt.Errorf("weekday %q", item)
		}
		is = func(d date) bool { return d.weekday == w%7 && (d.day-1)/7+1 == k }
	}
	c.weekDays = append(c.weekDays, is)
	return true, nil
}

// addHashed takes H, H(a-b) and these with /n: the job's own values.
func addHashed(set *[64]bool, job, field, item string, lo, hi int, names []string) error {
	span, stepText, stepped := strings.Cut(item, "/")
	first, last, end := lo, hi, hi
	if field == dayOfMonth {
		last = 28
	}
	if span != "H" {
		inner := strings.TrimSuffix(strings.TrimPrefix(span, "H("), ")")
		from, to, ranged := strings.Cut(inner, "-")
		if !ranged || len(inner)+3 != len(span) {
			return fmt.Errorf("%q is no form of H", item)
		}
		var err error
		if first, err = value(from, names); err != nil {
			return err
		}
		if last, err = value(to, names); err != nil {
			return err
		}
		if len(names) == 7 && last == 0 && first > 0 {
			last = 7
		}
		end = last
	}
	most := hi
	if len(names) == 7 {
		most = 7
	}
	if first < lo || last > most || first > last {
		return fmt.Errorf("%q is outside %d-%d", span, lo, most)
	}
	choices, step := last-first+1, 1
	if stepped {
		var err error
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return fmt.Errorf("step %q", stepText)
		}
		choices = min(choices, step)
	}
	sum := sha256.Sum256([]byte(job + "\n" + field))
	chosen := new(big.Int).Mod(new(big.Int).SetBytes(sum[:8]), big.NewInt(int64(choices)))
	v := first + int(chosen.Int64())
	if !stepped {
		end = v
	}
	for ; v <= end; v += step {
		if v > hi {
			set[v-hi-1] = true // Sunday as 7
		} else {
			set[v] = true
		}
	}
	return nil
}
