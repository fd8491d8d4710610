package schedule

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// plainField is a field as text and, computed apart, as values.
type plainField struct {
	text   string
	values map[int]bool
	days   []func(day time.Time) bool // of L, W and #
}

func (f plainField) has(v int, day time.Time) bool {
	return f.values[v] || slices.ContainsFunc(f.days, func(is func(time.Time) bool) bool { return is(day) })
}

func drawField(name string, lo, hi int, usual []int, job string) *rapid.Generator[plainField] {
	return rapid.Custom(func(t *rapid.T) plainField {
		f := plainField{values: map[int]bool{}}
		add := func(a, b, step int) {
			for v := a; v <= b; v += step {
				f.values[v] = true
			}
		}
		var parts []string
		for range rapid.IntRange(1, 3).Draw(t, "elements") {
			a := rapid.SampledFrom(usual).Draw(t, "a")
			b := rapid.IntRange(a, hi).Draw(t, "b")
			step := rapid.IntRange(1, hi-lo).Draw(t, "step")
			switch rapid.IntRange(0, 7).Draw(t, "form") {
			case 0:
				parts = append(parts, "*")
				add(lo, hi, 1)
			case 1:
				parts = append(parts, fmt.Sprintf("*/%d", step))
				add(lo, hi, step)
			case 2:
				parts = append(parts, fmt.Sprintf("%d-%d", a, b))
				add(a, b, 1)
			case 3:
				parts = append(parts, fmt.Sprintf("%d-%d/%d", a, b, step))
				add(a, b, step)
			case 4:
				parts = append(parts, fmt.Sprintf("%d/%d", a, step))
				add(a, hi, step)
			case 5:
				text, values := drawHashed(t, name, lo, hi, step, job)
				parts = append(parts, text)
				for _, v := range values {
					add(v, v, 1)
				}
			case 6:
				if text, is := drawRelative(t, name); is != nil {
					parts, f.days = append(parts, text), append(f.days, is)
					break
				}
				fallthrough
			default:
				parts = append(parts, fmt.Sprint(a))
				add(a, a, 1)
			}
		}
		f.text = strings.Join(parts, ",")
		return f
	})
}

// drawHashed draws one of H's forms for a job.
func drawHashed(t *rapid.T, name string, lo, hi, step int, job string) (text string, values []int) {
	sum := sha256.Sum256([]byte(job + "\n" + name))
	n := new(big.Int).SetBytes(sum[:8])
	mod := func(m int) int { return int(new(big.Int).Mod(n, big.NewInt(int64(m))).Int64()) }
	last := hi
	if name == "day of month" {
		last = 28
	}
	a := rapid.IntRange(lo, last).Draw(t, "H from")
	b := rapid.IntRange(a, last).Draw(t, "H to")
	switch rapid.IntRange(0, 3).Draw(t, "H form") {
	case 0:
		return "H", []int{lo + mod(last-lo+1)}
	case 1:
		return fmt.Sprintf("H(%d-%d)", a, b), []int{a + mod(b-a+1)}
	case 2:
		for v := lo + mod(min(step, last-lo+1)); v <= hi; v += step {
			values = append(values, v)
		}
		return fmt.Sprintf("H/%d", step), values
	}
	for v := a + mod(min(step, b-a+1)); v <= b; v += step {
		values = append(values, v)
	}
	return fmt.Sprintf("H(%d-%d)/%d", a, b, step), values
}

// drawRelative draws an element whose days depend on the month, and says of a day
// whether it is one.
func drawRelative(t *rapid.T, name string) (text string, is func(time.Time) bool) {
	length := func(day time.Time) int { return time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day() }
	works := func(day time.Time) bool { return day.Weekday() != time.Saturday && day.Weekday() != time.Sunday }
	// nearest is the working day with the least distance to day n of the month.
	nearest := func(day time.Time, n int) int {
		best := 0
		for d := 1; d <= length(day); d++ {
			at := time.Date(day.Year(), day.Month(), d, 0, 0, 0, 0, time.UTC)
			if works(at) && (best == 0 || abs(d-n) < abs(best-n)) {
				best = d
			}
		}
		return best
	}
	n := rapid.IntRange(1, 31).Draw(t, "n")
	k := rapid.IntRange(1, 5).Draw(t, "k")
	weekday := n % 7
	spelled := rapid.SampledFrom([]string{fmt.Sprint(weekday), strings.ToUpper(time.Weekday(weekday).String()[:3])}).Draw(t, "weekday")
	form := rapid.IntRange(0, 3).Draw(t, "relative form")
	switch {
	case name == "day of month" && form == 0:
		return "L", func(day time.Time) bool { return day.Day() == length(day) }
	case name == "day of month" && form == 1:
		return "LW", func(day time.Time) bool { return day.Day() == nearest(day, length(day)) }
	case name == "day of month" && form == 2 && n < 31:
		return fmt.Sprintf("L-%d", n), func(day time.Time) bool { return day.Day() == length(day)-n }
	case name == "day of month":
		return fmt.Sprintf("%dW", n), func(day time.Time) bool { return n <= length(day) && day.Day() == nearest(day, n) }
	case name == "day of week" && form == 0:
		return spelled + "L", func(day time.Time) bool {
			return int(day.Weekday()) == weekday && day.Day()+7 > length(day)
		}
	case name == "day of week":
		return fmt.Sprintf("%s#%d", spelled, k), func(day time.Time) bool {
			return int(day.Weekday()) == weekday && (day.Day()+6)/7 == k
		}
	}
	return "", nil
}

func abs(n int) int { return max(n, -n) }

func upTo(lo, hi int) (all []int) {
	for v := lo; v <= hi; v++ {
		all = append(all, v)
	}
	return all
}

type plainCron struct {
	second, minute, hour, dom, month, dow plainField
}

func drawCron(seconds bool, job string) *rapid.Generator[plainCron] {
	return rapid.Custom(func(t *rapid.T) plainCron {
		c := plainCron{
			second: plainField{text: "0", values: map[int]bool{0: true}},
			minute: drawField("minute", 0, 59, upTo(0, 59), job).Draw(t, "minute"),
			hour:   drawField("hour", 0, 23, []int{0, 1, 2, 3, 4, 12, 22, 23}, job).Draw(t, "hour"),
			dom:    plainField{text: "*"}, month: plainField{text: "*"}, dow: plainField{text: "*"},
		}
		c.dom.values, c.month.values, c.dow.values = set(1, 31), set(1, 12), set(0, 6)
		if seconds {
			c.second = drawField("second", 0, 59, upTo(0, 59), job).Draw(t, "second")
		} else {
			if rapid.Bool().Draw(t, "some days of month") {
				c.dom = drawField("day of month", 1, 31, upTo(1, 31), job).Draw(t, "dom")
			}
			if rapid.Bool().Draw(t, "some weekdays") {
				c.dow = drawField("day of week", 0, 6, upTo(0, 6), job).Draw(t, "dow")
			}
			if rapid.IntRange(0, 3).Draw(t, "some months") == 0 {
				c.month = drawField("month", 1, 12, upTo(1, 12), job).Draw(t, "month")
			}
		}
		return c
	})
}

func set(lo, hi int) map[int]bool {
	s := map[int]bool{}
	for v := lo; v <= hi; v++ {
		s[v] = true
	}
	return s
}

func (c plainCron) String() string {
	return strings.Join([]string{c.second.text, c.minute.text, c.hour.text, c.dom.text, c.month.text, c.dow.text}, " ")
}

// GoString keeps rapid's reports short.
func (c plainCron) GoString() string { return c.String() }

func (c plainCron) matches(l time.Time) bool {
	return c.hour.values[l.Hour()] && c.minute.values[l.Minute()] && c.second.values[l.Second()] && c.matchesDate(l)
}

func (c plainCron) matchesDate(l time.Time) bool {
	if !c.month.values[int(l.Month())] {
		return false
	}
	dom, dow := c.dom.has(l.Day(), l), c.dow.has(int(l.Weekday()), l)
	if c.dom.text[0] == '*' || c.dow.text[0] == '*' {
		return dom && dow
	}
	return dom || dow
}
