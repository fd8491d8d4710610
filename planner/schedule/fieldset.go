package schedule

import "math/bits"

// fieldSet is the set of local times that an expression matches, as if the zone
// had no clock changes. Local times are seconds from 1970-01-01T00:00:00 on the
// zone's clock. Bit n of a field stands for the value n.
type fieldSet struct {
	second, minute uint64
	hour           uint32
	dom            uint32    // 1 to 31
	month          uint16    // 1 to 12
	dow            uint8     // 0 (Sunday) to 6
	bothDays       bool      // a date must match dom and dow, not just one of them
	clock          clock     // not of the set, but here is room for it: see cron
	relative       *relative // more days of dom and dow; nil if there are none
}

// days returns the matching days of a month, day n as bit n. The month itself is
// not checked.
func (f *fieldSet) days(first int64, length int) uint32 {
	return f.daysOf(weekday(first), length)
}

// daysOf is days of a month that begins on a weekday.
func (f *fieldSet) daysOf(w, length int) uint32 {
	week := (uint64(f.dow)>>w | uint64(f.dow)<<(7-w)) & 0x7f // bit 0: weekday of day 1
	byWeek := uint32(week * (1 | 1<<7 | 1<<14 | 1<<21 | 1<<28) << 1)
	byMonth := f.dom
	if f.relative != nil {
		byMonth |= f.relative.daysOfMonth(w, length)
		byWeek |= f.relative.daysOfWeek(w, length)
	}
	mask := byMonth | byWeek
	if f.bothDays {
		mask = byMonth & byWeek
	}
	return mask & (1<<(length+1) - 2)
}

// months returns the months, month n as bit n, that have a matching day in some
// year. Within 400 years a month, also February of a leap year, begins on every
// weekday.
func (f *fieldSet) months() uint16 {
	var found uint16
	for month := 1; month <= 12; month++ {
		longest := monthLength(2000, month)
		for length := monthLength(2001, month); length <= longest; length++ {
			for w := range 7 {
				if f.daysOf(w, length) != 0 {
					found |= 1 << month
				}
			}
		}
	}
	return found
}

// next returns the first match >= t, or far if there is none up to lastYear.
func (f *fieldSet) next(t int64) int64 {
	day := floorDiv(t, daySeconds)
	year, month, dom := civil(day)
	if f.month>>month&1 != 0 {
		first := day - int64(dom-1)
		mask := f.days(first, monthLength(year, month))
		if mask>>dom&1 != 0 {
			if s := f.nextInDay(int(t - day*daySeconds)); s >= 0 {
				return day*daySeconds + int64(s)
			}
		}
		if rest := mask &^ (1<<(dom+1) - 1); rest != 0 {
			return (first+int64(bits.TrailingZeros32(rest)-1))*daySeconds + f.firstInDay()
		}
	}
	for {
		later := f.month &^ (1<<(month+1) - 1)
		if later == 0 {
			year, later = year+1, f.month
		}
		if year > lastYear || later == 0 {
			return far
		}
		month = bits.TrailingZeros16(later)
		first := firstOf(year, month)
		if mask := f.days(first, monthLength(year, month)); mask != 0 {
			return (first+int64(bits.TrailingZeros32(mask)-1))*daySeconds + f.firstInDay()
		}
	}
}

// prev returns the last match <= t, or -far if there is none down to firstYear.
func (f *fieldSet) prev(t int64) int64 {
	day := floorDiv(t, daySeconds)
	year, month, dom := civil(day)
	if f.month>>month&1 != 0 {
		first := day - int64(dom-1)
		mask := f.days(first, monthLength(year, month))
		if mask>>dom&1 != 0 {
			if s := f.prevInDay(int(t - day*daySeconds)); s >= 0 {
				return day*daySeconds + int64(s)
			}
		}
		if rest := mask & (1<<dom - 1); rest != 0 {
			return (first+int64(bits.Len32(rest)-2))*daySeconds + f.lastInDay()
		}
	}
	for {
		earlier := f.month & (1<<month - 1)
		if earlier == 0 {
			year, earlier = year-1, f.month
		}
		if year < firstYear || earlier == 0 {
			return -far
		}
		month = bits.Len16(earlier) - 1
		first := firstOf(year, month)
		if mask := f.days(first, monthLength(year, month)); mask != 0 {
			return (first+int64(bits.Len32(mask)-2))*daySeconds + f.lastInDay()
		}
	}
}

// count returns the number of matches in [from, to).
func (f *fieldSet) count(from, to int64) int64 {
	if from >= to {
		return 0
	}
	firstDay, lastDay := floorDiv(from, daySeconds), floorDiv(to, daySeconds)
	year, month, dom := civil(firstDay)
	first := firstDay - int64(dom-1)
	var whole, n int64
	for first <= lastDay {
		length := monthLength(year, month)
		if f.month>>month&1 != 0 {
			mask := f.days(first, length)
			if d := firstDay - first + 1; d >= 1 {
				if mask>>d&1 != 0 {
					n -= f.countInDay(int(from - firstDay*daySeconds))
				}
				mask &^= 1<<d - 1
			}
			if d := lastDay - first + 1; d <= int64(length) {
				if mask>>d&1 != 0 {
					n += f.countInDay(int(to - lastDay*daySeconds))
				}
				mask &= 1<<d - 1
			}
			whole += int64(bits.OnesCount32(mask))
		}
		first += int64(length)
		if month++; month > 12 {
			year, month = year+1, 1
		}
	}
	return n + whole*int64(bits.OnesCount32(f.hour)*bits.OnesCount64(f.minute)*bits.OnesCount64(f.second))
}

// The rest works on seconds of a day, on which no field can be empty.

func (f *fieldSet) firstInDay() int64 {
	return int64(bits.TrailingZeros32(f.hour)*3600 + bits.TrailingZeros64(f.minute)*60 + bits.TrailingZeros64(f.second))
}

func (f *fieldSet) lastInDay() int64 {
	return int64((bits.Len32(f.hour)-1)*3600 + (bits.Len64(f.minute)-1)*60 + bits.Len64(f.second) - 1)
}

// nextInDay returns the first match >= s of the same day, or -1.
func (f *fieldSet) nextInDay(s int) int {
	h, m, sec := s/3600, s/60%60, s%60
	if f.hour>>h&1 != 0 {
		if f.minute>>m&1 != 0 {
			if rest := f.second &^ (1<<sec - 1); rest != 0 {
				return h*3600 + m*60 + bits.TrailingZeros64(rest)
			}
		}
		if rest := f.minute &^ (1<<(m+1) - 1); rest != 0 {
			return h*3600 + bits.TrailingZeros64(rest)*60 + bits.TrailingZeros64(f.second)
		}
	}
	if rest := f.hour &^ (1<<(h+1) - 1); rest != 0 {
		return bits.TrailingZeros32(rest)*3600 + bits.TrailingZeros64(f.minute)*60 + bits.TrailingZeros64(f.second)
	}
	return -1
}

// prevInDay returns the last match <= s of the same day, or -1.
func (f *fieldSet) prevInDay(s int) int {
	h, m, sec := s/3600, s/60%60, s%60
	if f.hour>>h&1 != 0 {
		if f.minute>>m&1 != 0 {
			if rest := f.second & (1<<(sec+1) - 1); rest != 0 {
				return h*3600 + m*60 + bits.Len64(rest) - 1
			}
		}
		if rest := f.minute & (1<<m - 1); rest != 0 {
			return h*3600 + (bits.Len64(rest)-1)*60 + bits.Len64(f.second) - 1
		}
	}
	if rest := f.hour & (1<<h - 1); rest != 0 {
		return (bits.Len32(rest)-1)*3600 + (bits.Len64(f.minute)-1)*60 + bits.Len64(f.second) - 1
	}
	return -1
}

// countInDay returns the number of matches < s of one day.
func (f *fieldSet) countInDay(s int) int64 {
	h, m, sec := s/3600, s/60%60, s%60
	seconds := bits.OnesCount64(f.second)
	n := bits.OnesCount32(f.hour&(1<<h-1)) * bits.OnesCount64(f.minute) * seconds
	if f.hour>>h&1 != 0 {
		n += bits.OnesCount64(f.minute&(1<<m-1)) * seconds
		if f.minute>>m&1 != 0 {
			n += bits.OnesCount64(f.second & (1<<sec - 1))
		}
	}
	return int64(n)
}
