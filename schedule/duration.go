package schedule

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a duration in the ways that ShedLock's users know:
//
//	10m  90s  1500ms  2d       a number and a unit: ns us ms s m h d
//	1h30m                      as time.ParseDuration
//	250                        milliseconds
//	PT15M  P2D  P2DT3H4M       ISO 8601, a day being 24 hours
//
// Units and ISO 8601 are read in either case, so 10M is ten minutes. Blanks
// around it are ignored. A negative duration, one of years or months, and one that
// is too long for a time.Duration are errors.
func ParseDuration(text string) (time.Duration, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	bad := func(why string) (time.Duration, error) {
		return 0, fmt.Errorf("duration %q: %s; want such as 10m, 1h30m, 2d or PT10M", text, why)
	}
	var d time.Duration
	var ok bool
	if m := isoPattern.FindStringSubmatch(s); m != nil && s != "p" && !strings.HasSuffix(s, "t") {
		d, ok = sum(m[1:], []time.Duration{day, time.Hour, time.Minute, time.Second})
	} else if m := simplePattern.FindStringSubmatch(s); m != nil {
		unit := time.Millisecond
		if m[2] != "" {
			unit = units[m[2]]
		}
		d, ok = sum(m[1:2], []time.Duration{unit})
	} else {
		parsed, err := time.ParseDuration(s)
		if err != nil {
			return bad("not understood")
		}
		d, ok = parsed, true
	}
	switch {
	case !ok:
		return bad("too long")
	case d < 0:
		return bad("it is negative")
	}
	return d, nil
}

const day = 24 * time.Hour

var (
	isoPattern    = regexp.MustCompile(`^\+?p(?:([+-]?\d+)d)?(?:t(?:([+-]?\d+)h)?(?:([+-]?\d+)m)?(?:([+-]?\d+(?:[.,]\d{1,9})?)s)?)?$`)
	simplePattern = regexp.MustCompile(`^([+-]?\d+)(ns|us|µs|ms|s|m|h|d)?$`)
	units         = map[string]time.Duration{"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond,
		"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": day}
)

// sum adds up numbers of units, blank ones being 0, and reports whether a
// time.Duration can hold it.
func sum(numbers []string, of []time.Duration) (total time.Duration, ok bool) {
	for i, text := range numbers {
		if text == "" {
			continue
		}
		whole, fraction, _ := strings.Cut(strings.ReplaceAll(text, ",", "."), ".")
		n, err := strconv.ParseInt(whole, 10, 64)
		if err != nil || n > math.MaxInt64/int64(of[i]) || n < -math.MaxInt64/int64(of[i]) {
			return 0, false
		}
		part := time.Duration(n) * of[i]
		if fraction != "" { // of seconds
			nanos, _ := strconv.Atoi((fraction + "000000000")[:9])
			if strings.HasPrefix(whole, "-") {
				nanos = -nanos
			}
			part += time.Duration(nanos)
		}
		if next := total + part; (part > 0) == (next > total) || part == 0 {
			total = next
		} else {
			return 0, false
		}
	}
	return total, true
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
