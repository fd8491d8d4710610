package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// relative is the part of the day fields whose days depend on the month: L, LW,
// nW, n#k and nL.
type relative struct {
	// fromEnd has bit n set for the day that is n days before the last.
	fromEnd uint32
	// nearest has bit n set for the working day nearest to day n, bit 0 for the
	// last working day.
	nearest uint32
	// nth has, for each weekday, bit k set for its k-th day in the month, and bit
	// 0 for its last.
	nth [7]uint8
}

// add takes in an element that is no span.
func (r *relative) add(e element) {
	switch e.form {
	case formSpan:
	case formLast:
		r.fromEnd |= 1 << e.lo
	case formWorkday:
		r.nearest |= 1 << e.lo
	case formLastWork:
		r.nearest |= 1
	case formNth:
		r.nth[e.lo%7] |= 1 << e.hi
	case formLastDow:
		r.nth[e.lo%7] |= 1
	}
}

// daysOfMonth are those of the day-of-month field in a month whose first day is
// the weekday given, day n as bit n. Bits beyond the month may be set.
func (r *relative) daysOfMonth(first, length int) uint32 {
	days := bits.Reverse32(r.fromEnd) >> (31 - length)
	for rest := r.nearest; rest != 0; rest &= rest - 1 {
		day := bits.TrailingZeros32(rest)
		if day == 0 {
			day = length
		}
		if day <= length { // 31W names no day of a month of 30, as 31 does not
			days |= 1 << nearestWorkday(day, first, length)
		}
	}
	return days
}

// nearestWorkday is the day from Monday to Friday nearest to a day, in the same
// month.
func nearestWorkday(day, first, length int) int {
	switch (first + day - 1) % 7 {
	case 6: // Saturday
		if day == 1 {
			return 3
		}
		return day - 1
	case 0: // Sunday
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

// daysOfWeek are those of the day-of-week field, as daysOfMonth.
func (r *relative) daysOfWeek(first, length int) uint32 {
	var days uint32
	for weekday, ks := range r.nth {
		if ks == 0 {
			continue
		}
		day := 1 + (weekday-first+7)%7
		for k := 1; k <= 5; k, day = k+1, day+7 {
			last := day <= length && day+7 > length
			if ks>>k&1 != 0 || ks&1 != 0 && last {
				days |= 1 << day
			}
		}
	}
	return days
}

// relative reads an element whose days depend on the month. ok tells whether the
// text is one; if it is nearly one, the error says what is wrong.
func (f *field) relative(text string) (e element, ok bool, err error) {
	up := strings.ToUpper(text)
	switch {
	case f.isDom() && strings.ContainsAny(up, "LW") && strings.Trim(up, "0123456789LW-/") == "":
		e, err = f.relativeDom(text, up)
	case f.isDow() && strings.Contains(up, "#"):
		e, err = f.nth(text, up)
	case f.isDow() && strings.HasSuffix(up, "L") && monthField.named(up) < 0:
		e, err = f.lastDow(text, up)
	default:
		return element{}, false, nil
	}
	return e, err == nil, err
}

func (f *field) relativeDom(text, up string) (element, error) {
	before, isWork := strings.CutSuffix(up, "W")
	n, isNumber := number(before)
	back, isLast := strings.CutPrefix(up, "L-")
	days, isDays := number(back)
	switch {
	case up == "L":
		return element{form: formLast}, nil
	case up == "LW":
		return element{form: formLastWork}, nil
	case isWork && isNumber:
		if n < f.min || n > f.max {
			return element{}, fault(f.name, text, fmt.Sprintf("%s is out of range, allowed are %d-%d", clip(before), f.min, f.max), "")
		}
		return element{form: formWorkday, lo: n}, nil
	case isLast && isDays:
		if days < 1 || days > 30 {
			return element{}, fault(f.name, text, clip(back)+" is out of range, allowed are 1-30 days before the last", "L alone is the last day")
		}
		return element{form: formLast, lo: days}, nil
	case up == "W":
		return element{}, fault(f.name, text, "W needs a day of month before it", "15W is the working day nearest to the 15th, LW the last of the month")
	case up == "WL":
		return element{}, fault(f.name, text, "the last working day is written LW", "write LW")
	case strings.HasPrefix(up, "LW-"):
		return element{}, fault(f.name, text, "LW is the last working day and takes no offset", "L-1 is the day before the last, working or not")
	case isLast && isWork:
		return element{}, unsupported(f.name, text, "L-nW (a working day counted from the end)")
	case strings.Contains(up, "/"):
		return element{}, fault(f.name, text, "a step goes with values, not with L or W", "")
	case strings.HasSuffix(up, "-L"):
		return element{}, fault(f.name, text, "L and W go with one day, not with a range",
			fmt.Sprintf("write %q: days that a month does not have do not count", strings.TrimSuffix(up, "L")+"31"))
	case strings.HasSuffix(up, "L"):
		return element{}, fault(f.name, text, "nL is the last weekday n and belongs in the day of week", "L alone is the last day of the month")
	case strings.Contains(up, "-"):
		return element{}, fault(f.name, text, "L and W go with one day, not with a range", "write a list such as 1W,15W")
	}
	return element{}, fault(f.name, text, "L and W are written L, L-3, LW or 15W", "")
}

func (f *field) nth(text, up string) (element, error) {
	before, after, _ := strings.Cut(up, "#")
	k, ok := number(after)
	switch {
	case before == "":
		return element{}, fault(f.name, text, "a weekday must stand before #", "MON#1 is the first Monday of the month")
	case strings.ContainsAny(before, "-/*?"):
		return element{}, fault(f.name, text, "one weekday stands before #, not a range or step", "write a list such as MON#1,TUE#1")
	}
	n, err := f.value(text, before)
	switch {
	case err != nil:
		return element{}, err
	case after == "L":
		return element{}, fault(f.name, text, "the last one is written without #", "write "+before+"L")
	case !ok:
		return element{}, fault(f.name, text, "a number 1-5 must follow #", "write a list such as MON#1,MON#3 for several")
	case k < 1 || k > 5:
		return element{}, fault(f.name, text, "no month has one numbered "+strconv.Itoa(k)+", allowed are 1-5", "write "+before+"L for the last")
	}
	return element{form: formNth, lo: n, hi: k}, nil
}

func (f *field) lastDow(text, up string) (element, error) {
	before := up[:len(up)-1]
	switch {
	case before == "":
		return element{}, fault(f.name, text, "L needs a weekday before it", "FRIL is the last Friday of the month, SAT the last day of the week")
	case strings.ContainsAny(before, "-/*?"):
		return element{}, fault(f.name, text, "one weekday stands before L, not a range or step", "write a list such as FRIL,SATL")
	}
	n, err := f.value(text, before)
	if err != nil {
		return element{}, err
	}
	return element{form: formLastDow, lo: n}, nil
}
