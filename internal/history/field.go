package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var (
	months   = []string{"", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdays = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

func parseCron(job string, fields []string) (*cron, error) {
	if len(fields) == 5 {
		fields = slices.Insert(slices.Clone(fields), 0, "0")
	}
	if len(fields) != 6 {
		return nil, fmt.Errorf("has %d fields", len(fields))
	}
	c := &cron{}
	for i, f := range []struct {
		name   string
		set    *[64]bool
		lo, hi int
		names  []string
	}{
		{"second", &c.second, 0, 59, nil},
		{"minute", &c.minute, 0, 59, nil},
		{"hour", &c.hour, 0, 23, nil},
		{dayOfMonth, &c.day, 1, 31, nil},
		{"month", &c.month, 1, 12, months},
		{dayOfWeek, &c.weekday, 0, 6, weekdays},
	} {
		for item := range strings.SplitSeq(fields[i], ",") {
			item = strings.ToUpper(item)
			var err error
			var special bool
			switch f.name {
			case dayOfMonth:
				special, err = c.addDay(item)
			case dayOfWeek:
				special, err = c.addWeekday(item)
			}
			switch {
			case special || err != nil:
			case strings.HasPrefix(item, "H"):
				err = addHashed(f.set, job, f.name, item, f.lo, f.hi, f.names)
			default:
				err = addItem(f.set, item, f.lo, f.hi, f.names)
			}
			if err != nil {
				return nil, fmt.Errorf("field %q: %w", fields[i], err)
			}
		}
	}
	c.bothDays = wild(fields[3]) || wild(fields[5])
	c.realTime = fields[2][0] == '*' || strings.HasPrefix(strings.ToUpper(fields[2]), "H/")
	return c, nil
}

func wild(field string) bool { return field[0] == '*' || field[0] == '?' }

// addItem adds the values of one element of a list: *, ?, a, a-b, and these with
// /n.
func addItem(set *[64]bool, item string, lo, hi int, names []string) error {
	span, stepText, stepped := strings.Cut(item, "/")
	step := 1
	if stepped {
		var err error
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return fmt.Errorf("step %q", stepText)
		}
	}
	from, to := lo, hi
	if span != "*" && span != "?" {
		first, last, ranged := strings.Cut(span, "-")
		var err error
		if from, err = value(first, names); err != nil {
			return err
		}
		switch {
		case ranged:
			if to, err = value(last, names); err != nil {
				return err
			}
			if len(names) == 7 && to == 0 && from > 0 {
				to = 7 // a range that ends on Sunday
			}
		case !stepped:
			to = from
		}
	}
	most := hi
	if len(names) == 7 {
		most = 7
	}
	if from < lo || to > most || from > to {
		return fmt.Errorf("%q is outside %d-%d", span, lo, most)
	}
	for v := from; v <= to; v += step {
		if v > hi {
			set[0] = true // Sunday as 7
		} else {
			set[v] = true
		}
	}
	return nil
}

func value(text string, names []string) (int, error) {
	if i := slices.Index(names, text); i >= 0 && text != "" {
		return i, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("value %q", text)
	}
	return n, nil
}
