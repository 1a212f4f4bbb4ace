package schedule

import "testing"

func TestWords(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"@every 1m30s":          "every 1m30s",
		"0 9 * * 1-5":           "at 09:00 on Monday to Friday, in Europe/Berlin",
		"@daily":                "at 00:00, in Europe/Berlin",
		"@hourly":               "minute 0 of every hour, in Europe/Berlin",
		"@weekly":               "at 00:00 on Sunday, in Europe/Berlin",
		"@monthly":              "at 00:00 on day 1 of the month, in Europe/Berlin",
		"@yearly":               "at 00:00 on day 1 of the month in January, in Europe/Berlin",
		"* * * * *":             "every minute of every hour, in Europe/Berlin",
		"*/5 * * * *":           "every 5th minute of every hour, in Europe/Berlin",
		"2-59/3 * * * *":        "every 3rd minute from 2 of every hour, in Europe/Berlin",
		"*/7 * * * *":           "every 7th minute of every hour, in Europe/Berlin",
		"*/31 9-17 * * *":       "minutes 0 and 31 of hours 9 to 17, in Europe/Berlin",
		"0 9,18 * * *":          "at 09:00 and 18:00, in Europe/Berlin",
		"*/10 * * * * *":        "every 10th second of every minute of every hour, in Europe/Berlin",
		"30 0 9 * * *":          "at 09:00:30, in Europe/Berlin",
		"15 1,2 1,15 * *":       "at 01:15 and 02:15 on days 1 and 15 of the month, in Europe/Berlin",
		"0 9 13 * 5":            "at 09:00 on day 13 of the month or on Friday, in Europe/Berlin",
		"0 9 */2 * 1,3":         "at 09:00 on every 2nd day of the month or on Monday and Wednesday, in Europe/Berlin",
		"0 9 * 6-8,12 *":        "at 09:00 in June to August and December, in Europe/Berlin",
		"CRON_TZ=UTC 0 9 * * *": "at 09:00, in UTC",
		"0 9 1-31 * 1":          "at 09:00, in Europe/Berlin",
	} {
		if got := Words(mustParse(t, spec, zone(t, "Europe/Berlin"))); got != want {
			t.Errorf("%q: %q, want %q", spec, got, want)
		}
	}
}
