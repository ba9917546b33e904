package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/intlock/intlock/schedule"
)

// D1 D2: the ways to write a duration.
func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "90s": 90 * time.Second, "1500ms": 1500 * time.Millisecond, "2d": 48 * time.Hour, "7us": 7 * time.Microsecond,
		"7µs": 7 * time.Microsecond, "3ns": 3, "1h": time.Hour, "+5s": 5 * time.Second, "250": 250 * time.Millisecond, "0": 0, "10M": 10 * time.Minute, "10MS": 10 * time.Millisecond,
		"1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, " 10m\t": 10 * time.Minute,
		"PT15M": 15 * time.Minute, "P2D": 48 * time.Hour, "P2DT3H4M": 51*time.Hour + 4*time.Minute, "PT0S": 0, "pt20.345s": 20345 * time.Millisecond,
		"PT1,5S": 1500 * time.Millisecond, "PT-6H3M": -1, "PT6H-3M": 5*time.Hour + 57*time.Minute, "PT0.000000001S": 1, "P106751D": 106751 * 24 * time.Hour,
	} {
		got, err := schedule.ParseDuration(text)
		if want < 0 {
			if err == nil {
				t.Errorf("%q = %v, want an error", text, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "10foo", "foo", "-5s", "-5", "P", "PT", "P1DT", "P1Y", "P1M", "P1W", "PT1", "T5M", "10 m", "1d2h", "PT-5M", "106752d", "P106752D", "99999999999999999999", "9223372036854775807", "P106751DT24H", "PT5M3"} {
		if got, err := schedule.ParseDuration(text); err == nil {
			t.Errorf("%q = %v, want an error", text, got)
		}
	}
}

func TestParseTask(t *testing.T) {
	got, err := schedule.ParseTask("job", "PT10M", " 30s ")
	if want := (schedule.Task{Name: "job", LockAtMostFor: 10 * time.Minute, LockAtLeastFor: 30 * time.Second}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = schedule.ParseTask("job", "", "0")
	if want := (schedule.Task{Name: "job", LockAtLeastFor: schedule.None}); err != nil || got != want {
		t.Errorf("blank: %+v, %v", got, err)
	}
	for _, texts := range [][3]string{{"", "1m", ""}, {"job", "soon", ""}, {"job", "1m", "-1s"}, {"job", "0", ""}} {
		if _, err := schedule.ParseTask(texts[0], texts[1], texts[2]); !errors.Is(err, schedule.ErrTask) {
			t.Errorf("%q: %v, want ErrTask", texts, err)
		}
	}
}
