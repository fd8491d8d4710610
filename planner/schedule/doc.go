// Package schedule says when a job is due. It turns the text of a schedule into
// a Schedule, which answers three questions about slots: the next one, the
// latest one, and how many lie in a window.
//
// Everything here is pure. A Schedule is immutable, never reads a clock, starts
// nothing, and may be used by any number of goroutines at once. The answer
// depends only on the text, the Options and the time zone data that the program
// brings (package zoneinfo); nodes of two versions with different data can
// therefore disagree about a slot, which the claim transaction settles.
//
// # Slots
//
// A slot is a whole second in UTC, from 0001-01-01T00:00:01Z (the zero
// time.Time means "never") to 9999-12-31T23:59:59Z (later years cannot be
// written in RFC 3339).
//
// # Texts
//
//	[CRON_TZ=zone] [second] minute hour day-of-month month day-of-week
//	[CRON_TZ=zone] @yearly @annually @monthly @weekly @daily @midnight @hourly
//	@every 1h30m              anchor, anchor+1h30m, anchor+3h, ... in real time
//	@at 2026-12-01T09:00:00Z,2026-12-24T18:00:00+01:00
//
// A field is a list of elements; an element is *, a value, a range a-b, or one of
// these with a step: */n, a-b/n, and a/n, which means a-max/n. Months and weekdays
// have three-letter names; 0 and 7 are Sunday. A day field may be ?, which means *.
//
// Days that depend on the month: L (the last), L-n (n days before it), LW (the last
// working day) and nW (the working day nearest to day n, in the same month) in the
// day of month; n#k (the k-th weekday n) and nL (the last) in the day of week. A
// month without day n, or without a k-th weekday n, has none.
//
// H stands for a value that the job's id chooses, for each field apart: H among all
// values (days of month: 1 to 28), H(a-b) in a range, H/n and H(a-b)/n as the first
// of a sequence in steps of n. Whether a text is refused never depends on the id.
//
// If a day field begins with * or ?, a date must match both day fields;
// otherwise it must match either. That is crontab's rule.
//
// The grammar is strict: what other parsers clamp, ignore or never fire is
// refused with the field, the text, the reason and, where one is known, a
// replacement. So is an expression for which no date exists.
//
// # Clock changes
//
// A schedule whose hour field begins with * or H/ keeps to real time: it fires
// whenever the zone's clock shows a matching time, in both passes of a repeated
// hour, and makes up nothing in a gap.
//
// Every other cron expression is meant once per matching local time:
//
//	Missing   shift: local times lost in a gap run once, together, at the first
//	          instant after it; that run and a regular one there are one slot.
//	          A gap longer than three hours is a change of calendar, not of the
//	          clock (Apia's deleted day), and makes up nothing.
//	          skip: lost local times do not run.
//	Repeated  first, last or both passes of a local time that occurs twice.
//
// # How it is computed
//
// A zone is a table of periods of constant offset, built once per zone and
// process. Inside a period local time is plain arithmetic on seconds, so the
// search works on bit sets of fields and months and treats a clock change as an
// event at the border of two periods. Zone rules and calendar both repeat every
// 400 years, so the table ends and later instants are mapped back into it. No
// search steps through slots: each is bounded by months and periods.
package schedule
