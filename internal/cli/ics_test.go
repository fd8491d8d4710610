package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const icsHead = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nBEGIN:STANDARD\r\nDTSTART:19701025T030000\r\nRRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\n"

func icsOf(events ...string) []byte {
	text := icsHead
	for _, e := range events {
		text += "BEGIN:VEVENT\r\n" + strings.ReplaceAll(e, "\n", "\r\n") + "\r\nEND:VEVENT\r\n"
	}
	return []byte(text + "END:VCALENDAR\r\n")
}

func TestImportCalendar(t *testing.T) {
	file := filepath.Join(t.TempDir(), "holidays.ics")
	require.NoError(t, os.WriteFile(file, icsOf(
		"SUMMARY:Christmas\\, first\n  day\nDTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261226\nRRULE:FREQ=YEARLY",
		"SUMMARY:Works holiday\nDTSTART;VALUE=DATE:20270802\nDTEND;VALUE=DATE:20270821",
		"SUMMARY:Cancelled\nSTATUS:CANCELLED\nDTSTART;VALUE=DATE:20270101",
		"SUMMARY:Move\nDTSTART;TZID=Europe/Berlin:20270501T200000\nDTEND:20270502T060000Z",
		"SUMMARY:Night\nDTSTART;TZID=Europe/Berlin:20270104T000000\nDTEND;TZID=Europe/Berlin:20270104T060000\nRRULE:FREQ=WEEKLY;BYDAY=MO,TU",
	), 0o600))
	var stdout, stderr bytes.Buffer
	code := Main(t.Context(), Deps{Environ: []string{}, Stdout: &stdout, Stderr: &stderr},
		[]string{"calendar", "import", file, "--zone", "Europe/Berlin", "--show"})
	require.Zero(t, code, stderr.String())
	for _, want := range []string{
		"name: namespaces/default/calendars/holidays", "timeZone: Europe/Berlin", "Christmas, first day", `date: 12-25`,
		`first: "2027-08-02"`, `last: "2027-08-20"`, "2027-05-01T18:00:00Z", "2027-05-02T06:00:00Z", "- MON\n      - TUE", `from: "00:00"`, `to: "06:00"`,
	} {
		require.Contains(t, stdout.String(), want)
	}
	require.NotContains(t, stdout.String(), "Cancelled")
}

// A folded line of a million parts costs no more than its length.
func TestLongFoldedLines(t *testing.T) {
	const parts = 1_000_000
	lines, err := icsLines([]byte("SUMMARY:" + strings.Repeat("\n a", parts) + "\nEND:VEVENT\n"))
	require.NoError(t, err)
	require.Len(t, lines, 2)
	require.Len(t, lines[0].value, parts)
	require.Equal(t, parts+2, lines[1].number)
}

func TestImportRefuses(t *testing.T) {
	for want, event := range map[string]string{
		"line 12: EXDATE: stands in an event that does not recur":                     "DTSTART;VALUE=DATE:20261225\nEXDATE;VALUE=DATE:20271225",
		"line 13: EXDATE: exceptions from an event that recurs without an end":        "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20271225",
		"line 13: EXDATE: \"20271225T090000\" is no date":                             "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=3\nEXDATE:20271225T090000",
		"line 12: RDATE: is not supported":                                            "DTSTART;VALUE=DATE:20261225\nRDATE;VALUE=DATE:20271225",
		"line 12: RECURRENCE-ID: is not supported":                                    "DTSTART;VALUE=DATE:20261225\nRECURRENCE-ID;VALUE=DATE:20271225",
		"line 11: DTSTART: \"20261225T090000\" names no zone":                         "DTSTART:20261225T090000\nDTEND:20261225T100000",
		"line 12: DURATION: \"PT\" is no duration":                                    "DTSTART:20261225T090000Z\nDURATION:PT",
		"line 12: DURATION: \"P0D\" takes no time":                                    "DTSTART:20261225T090000Z\nDURATION:P0D",
		"line 12: DURATION: \"-PT1H\" is no duration":                                 "DTSTART:20261225T090000Z\nDURATION:-PT1H",
		"line 12: DURATION: \"PT24H\" is not a number of days":                        "DTSTART;VALUE=DATE:20261225\nDURATION:PT24H",
		"line 11: DTSTART: the event has neither DTEND nor DURATION":                  "DTSTART:20261225T090000Z",
		"line 10: BEGIN: the event has no DTSTART":                                    "SUMMARY:x",
		`line 13: RRULE: "FREQ=MONTHLY" is not supported without an end`:              "DTSTART:20261225T090000Z\nDTEND:20261225T100000Z\nRRULE:FREQ=MONTHLY",
		`line 12: RRULE: "FREQ=DAILY" is not supported without an end: of whole days`: "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=DAILY",
		"line 12: RRULE: has both UNTIL and COUNT":                                    "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=DAILY;COUNT=2;UNTIL=20270101",
		"line 12: RRULE: COUNT=0 is not a number from 1 to 10000":                     "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=DAILY;COUNT=0",
		"line 12: RRULE: UNTIL=SOON is neither a date nor a time":                     "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=DAILY;UNTIL=soon",
		"line 12: RRULE: FREQ=HOURLY is not supported: only":                          "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=HOURLY;COUNT=2",
		"line 12: RRULE: BYSETPOS is not supported beside FREQ=MONTHLY":               "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=MONTHLY;COUNT=2;BYSETPOS=-1",
		"line 12: RRULE: BYDAY is not supported beside FREQ=YEARLY":                   "DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
		"line 12: RRULE: BYMONTHDAY=1 is not supported: only that of DTSTART, 25, is": "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=MONTHLY;COUNT=2;BYMONTHDAY=1",
		`line 12: RRULE: "2MO" is no weekday`:                                         "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=WEEKLY;COUNT=2;BYDAY=2MO",
		"line 12: RRULE: the event comes more than 500 times":                         "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=DAILY;UNTIL=20290101",
		"line 11: DTSTART: weekly hours must be whole minutes and end on the day":     "DTSTART:20270104T090000Z\nDTEND:20270105T100000Z\nRRULE:FREQ=WEEKLY",
	} {
		_, err := parseICS(icsOf(event), map[bool]string{true: "UTC"}[strings.HasPrefix(want, "line 11: DTSTART: weekly")])
		require.ErrorContains(t, err, want)
	}
	_, err := parseICS([]byte(icsHead+strings.Repeat(" a\n", maxICS/3)), "")
	require.ErrorContains(t, err, "has more than 4194304 bytes")
	_, err = parseICS([]byte("hello"), "")
	require.ErrorContains(t, err, "this is no iCalendar file")
	_, err = parseICS([]byte(icsHead), "")
	require.ErrorContains(t, err, "VCALENDAR has no end")
}

// What recurs up to an end is written out, each time by the clock of its zone and
// without those that are excepted.
func TestImportWritesOutWhatEnds(t *testing.T) {
	for event, want := range map[string]string{
		"DTSTART;VALUE=DATE:20260130\nRRULE:FREQ=DAILY;UNTIL=20260201":                                                       "2026-01-30 2026-01-31 2026-02-01",
		"DTSTART;VALUE=DATE:20260130\nDURATION:P2D\nRRULE:FREQ=DAILY;INTERVAL=5;COUNT=2":                                     "2026-01-30..2026-01-31 2026-02-04..2026-02-05",
		"DTSTART;VALUE=DATE:20260131\nDURATION:P1W":                                                                          "2026-01-31..2026-02-06",
		"DTSTART;VALUE=DATE:20260131\nRRULE:FREQ=MONTHLY;COUNT=3;BYMONTHDAY=31":                                              "2026-01-31 2026-03-31 2026-05-31",
		"DTSTART;VALUE=DATE:20280229\nRRULE:FREQ=YEARLY;COUNT=2":                                                             "2028-02-29 2032-02-29",
		"DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;UNTIL=20291225T000000Z\nEXDATE:20271225":                             "2026-12-25 2028-12-25 2029-12-25",
		"DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=3\nEXDATE:20261225,20281225":                                   "2027-12-25",
		"DTSTART;VALUE=DATE:20260106\nRRULE:FREQ=WEEKLY;COUNT=4;BYDAY=MO,TU":                                                 "2026-01-06 2026-01-12 2026-01-13 2026-01-19",
		"DTSTART;VALUE=DATE:19970805\nRRULE:FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO":                              "1997-08-05 1997-08-10 1997-08-19 1997-08-24",
		"DTSTART;VALUE=DATE:19970805\nRRULE:FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU":                              "1997-08-05 1997-08-17 1997-08-19 1997-08-31",
		"DTSTART;TZID=Europe/Berlin:20260328T090000\nDURATION:PT1H30M\nRRULE:FREQ=DAILY;COUNT=2":                             "2026-03-28T08:00:00Z+1h30m0s 2026-03-29T07:00:00Z+1h30m0s",
		"DTSTART:20260328T090000Z\nDTEND:20260328T100000Z\nRRULE:FREQ=DAILY;UNTIL=20260330T090000Z\nEXDATE:20260329T090000Z": "2026-03-28T09:00:00Z+1h0m0s 2026-03-30T09:00:00Z+1h0m0s",
		"DTSTART;TZID=Europe/Berlin:20260328T230000\nDURATION:P1D":                                                           "2026-03-28T22:00:00Z+23h0m0s",
		"DTSTART;TZID=Europe/Berlin:20270104T220000\nDTEND:20270104T230000Z\nRRULE:FREQ=DAILY":                               "weekly MON-SUN 22:00 24:00",
	} {
		spec, err := parseICS(icsOf("SUMMARY:x\n"+event), "Europe/Berlin")
		require.NoError(t, err, event)
		var got []string
		for _, e := range spec.GetEntries() {
			require.Equal(t, "x", e.GetName())
			switch {
			case e.GetDate() != "":
				got = append(got, e.GetDate())
			case e.GetRange() != nil:
				got = append(got, e.GetRange().GetFirst()+".."+e.GetRange().GetLast())
			case e.GetWeekly() != nil:
				got = append(got, "weekly", strings.Join(e.GetWeekly().GetDays(), ","), e.GetWeekly().GetFrom(), e.GetWeekly().GetTo())
			default:
				from, to := e.GetPeriod().GetStart().AsTime(), e.GetPeriod().GetEnd().AsTime()
				got = append(got, from.Format(time.RFC3339)+"+"+to.Sub(from).String())
			}
		}
		require.Equal(t, want, strings.Join(got, " "), event)
	}
}
