package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	anchor := instant(t, "2026-11-30T10:05:00Z")
	for _, c := range []struct{ spec, job, want string }{
		{"* * * * *", "", "every minute"},
		{"* * * * * *", "", "every second"},
		{"*/15 * * * *", "", "every 15 minutes"},
		{"5/15 * * * *", "", "every 15 minutes from minute 5 on"},
		{"*/7 * * * *", "", "at minutes 0 to 56 in steps of 7"},
		{"*/25 * * * *", "", "at minutes 0, 25 and 50"},
		{"*/10 * * * * *", "", "every 10 seconds"},
		{"*/10 */5 9-17 * * *", "", "every 10 seconds, every 5 minutes, from 09:00 to 17:59"},
		{"30 * * * * *", "", "at second 30, every minute"},
		{"0 * * * *", "", "every hour"},
		{"@hourly", "", "every hour"},
		{"5 * * * *", "", "at minute 05 of every hour"},
		{"0 */2 * * *", "", "every 2 hours, at 00:00 and so on"},
		{"10 1/6 * * *", "", "every 6 hours, at 01:10 and so on"},
		{"0 8-18/2 * * *", "", "every 2 hours from 08:00 to 18:00"},
		{"30 9-17 * * 1-5", "", "every hour from 09:30 to 17:30, on Monday to Friday"},
		{"0 9-11,15-17 * * *", "", "at minute 00 of hours 9 to 11 and 15 to 17"},
		{"*/5 9-17 * * *", "", "every 5 minutes, from 09:00 to 17:59"},
		{"* 1,5 * * *", "", "every minute, in hours 1 and 5"},
		{"30 2 * * *", "", "at 02:30, every day"},
		{"@daily", "", "at 00:00, every day"},
		{"15 30 2 * * ?", "", "at 02:30:15, every day"},
		{"0,30 6,18 * * *", "", "at 06:00, 06:30, 18:00 and 18:30, every day"},
		{"30 2 * * MON-FRI", "", "at 02:30, on Monday to Friday"},
		{"0 6 * * 5-7", "", "at 06:00, on Friday to Sunday"},
		{"@weekly", "", "at 00:00, on Sunday"},
		{"@yearly", "", "at 00:00, on day 1 of January"},
		{"0 0 1,15 JAN-MAR,7 *", "", "at 00:00, on days 1 and 15 of January to March and July"},
		{"0 0 * 2 *", "", "at 00:00, in February"},
		{"0 0 * 2 5", "", "at 00:00, on Friday, in February"},
		{"0 0 13 * FRI", "", "at 00:00, on day 13 of the month, and also on Friday"},
		{"0 0 13 2 FRI", "", "at 00:00, on day 13 of the month, and also on Friday, both in February"},
		{"0 0 */2 * MON", "", "at 00:00, on days 1 to 31 in steps of 2 of the month if that is Monday"},
		{"0 0 1-31 * FRI", "", "at 00:00"},
		{"0 0 L * *", "", "at 00:00, on the last day of the month"},
		{"0 0 L-1,L-3 * *", "", "at 00:00, on the last day but one and the day 3 days before the last of the month"},
		{"0 0 LW 12 *", "", "at 00:00, on the last working day of December"},
		{"0 0 1,15W * *", "", "at 00:00, on day 1 and the working day nearest to day 15 of the month"},
		{"0 0 * * 2#1", "", "at 00:00, on the first Tuesday of the month"},
		{"0 0 * 11 THU#4", "", "at 00:00, on the fourth Thursday of November"},
		{"0 0 * * 5L", "", "at 00:00, on the last Friday of the month"},
		{"H H * * *", "default/report", "at 18:17, every day"},
		{"H H * * *", "", "at minute one of 0 to 59 by the job's name, in hour one of 0 to 23 by the job's name"},
		{"H/15 * * * *", "default/report", "every 15 minutes from minute 2 on"},
		{"H/15 * * * *", "", "at minute 0 to 59 in steps of 15, the first being one of 0 to 14 by the job's name"},
		{"CRON_TZ=Asia/Tokyo 0 9 * * *", "", "at 09:00, every day"},
		{"@every 1h30m", "", "every 1h30m, counted from 2026-11-30T10:05:00Z"},
		{"@every 24h", "", "every 24h, counted from 2026-11-30T10:05:00Z"},
		{"@every 90s", "", "every 1m30s, counted from 2026-11-30T10:05:00Z"},
		{"@at 2026-12-24T18:00:00+01:00,2026-12-01T09:00:00Z", "", "once at 2026-12-01T09:00:00Z and 2026-12-24T17:00:00Z"},
	} {
		d, err := Describe(c.spec, Options{Job: c.job, Anchor: anchor})
		require.NoError(t, err, c.spec)
		require.Equal(t, c.want, d.When, c.spec)
	}
	d, err := Describe("CRON_TZ=Asia/Tokyo H */2 * * *", Options{})
	require.NoError(t, err)
	require.Equal(t, "Asia/Tokyo", d.Zone)
	require.True(t, d.RealTime)
	require.True(t, d.Hashed)
	_, err = Describe("0 22-2 * * *", Options{})
	require.ErrorContains(t, err, `write "22-23,0-2"`)
}
