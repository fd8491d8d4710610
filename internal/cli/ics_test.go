package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		`line 12: RRULE: "FREQ=YEARLY;UNTIL=20300101" is not supported`: "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;UNTIL=20300101",
		"line 12: EXDATE: exceptions from a recurring event":            "DTSTART;VALUE=DATE:20261225\nEXDATE;VALUE=DATE:20271225",
		"line 11: DTSTART: \"20261225T090000\" names no zone":           "DTSTART:20261225T090000\nDTEND:20261225T100000",
		"line 12: DURATION: is not supported":                           "DTSTART:20261225T090000Z\nDURATION:PT1H",
		"line 11: DTSTART: the event has no DTEND":                      "DTSTART:20261225T090000Z",
		"line 10: BEGIN: the event has no DTSTART":                      "SUMMARY:x",
		`line 13: RRULE: "FREQ=MONTHLY" is not supported`:               "DTSTART:20261225T090000Z\nDTEND:20261225T100000Z\nRRULE:FREQ=MONTHLY",
	} {
		_, err := parseICS(icsOf(event), "")
		require.ErrorContains(t, err, want)
	}
	_, err := parseICS([]byte(icsHead+strings.Repeat(" a\n", maxICS/3)), "")
	require.ErrorContains(t, err, "has more than 4194304 bytes")
	_, err = parseICS([]byte("hello"), "")
	require.ErrorContains(t, err, "this is no iCalendar file")
	_, err = parseICS([]byte(icsHead), "")
	require.ErrorContains(t, err, "VCALENDAR has no end")
}
