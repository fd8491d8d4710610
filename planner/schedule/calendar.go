package schedule

const daySeconds int64 = 24 * 60 * 60

// Searches of the calendar end here; one year beyond the slots' limits on both
// sides, since local years differ from UTC years at the ends.
const (
	firstYear = 0
	lastYear  = 10000
)

// Days are counted from 1970-01-01 in the proleptic Gregorian calendar. The
// conversions count years from March, which puts the leap day last.

// civil returns the date of a day.
func civil(day int64) (year, month, dom int) {
	day += 719468 // from 0000-03-01
	era := floorDiv(day, 146097)
	doe := day - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	dom = int(doy - (153*mp+2)/5 + 1)
	year = int(yoe + era*400)
	if mp < 10 {
		return year, int(mp) + 3, dom
	}
	return year + 1, int(mp) - 9, dom
}

// firstOf returns the first day of a month.
func firstOf(year, month int) int64 {
	y, mp := int64(year), int64(month)-3
	if month <= 2 {
		y, mp = y-1, mp+12
	}
	era := floorDiv(y, 400)
	yoe := y - era*400
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + (153*mp+2)/5 - 719468
}

// weekday returns 0 for Sunday to 6 for Saturday.
func weekday(day int64) int {
	w := (day + 4) % 7
	if w < 0 {
		w += 7
	}
	return int(w)
}

var monthLengths = [13]int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func monthLength(year, month int) int {
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return monthLengths[month]
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
