package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// Computed by Java: UUID.nameUUIDFromBytes(key.getBytes(UTF_8)), except for
// text that is a UUID.
var javaVectors = map[string]string{
	"foo":    "acbd18db-4cc2-385c-adef-654fccc4a4d8",
	"bar":    "37b51d19-4a75-33e4-9b56-f6524f2d51f2",
	"test":   "098f6bcd-4621-3373-8ade-4e832627b4f6",
	"leader": "c444858e-0aae-3727-9a73-d2eae62321ad",
	"lock1":  "659c87ac-a325-312a-b9bd-320ae9e2d244",
	"foo:1":  "f520f949-511f-3122-a2bb-fd0247bb840a",
	"1":      "c4ca4238-a0b9-3382-8dcc-509a6f75849b",
	"日本":     "4dbed2e6-5745-3884-a671-37d3514119b3",
	"":       "d41d8cd9-8f00-3204-a980-0998ecf8427e",

	"123e4567-e89b-12d3-a456-426614174000": "123e4567-e89b-12d3-a456-426614174000",
	"123E4567-E89B-12D3-A456-426614174000": "123e4567-e89b-12d3-a456-426614174000",
	"00000000-0000-0000-0000-000000000000": "00000000-0000-0000-0000-000000000000",
}

func TestPathFor(t *testing.T) {
	for key, want := range javaVectors {
		if got := registry.PathFor(key); got != want {
			t.Errorf("PathFor(%q) = %s, want %s", key, got, want)
		}
	}
	// Not UUIDs in their usual form: hashed, each to a row of its own.
	seen := map[string]string{}
	for _, key := range []string{
		"1-1-1-1-1", "{123e4567-e89b-12d3-a456-426614174000}", "urn:uuid:123e4567-e89b-12d3-a456-426614174000",
		"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g", "123e4567-e89b-12d3-a456-426614174000 ",
		"123e4567-e89b-12d3-a456-426614174000\n",
		"Job", "job", "Job ", "😀", "\xff", "\x00", strings.Repeat("k", 10_000), strings.Repeat("k", 10_001),
	} {
		got := registry.PathFor(key)
		if len(got) != 36 || got[14] != '3' || !strings.ContainsRune("89ab", rune(got[19])) {
			t.Errorf("PathFor(%.40q) = %s, want a version-3 UUID", key, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%.40q and %.40q share %s", key, other, got)
		}
		seen[got] = key
	}
}

func TestBadOptions(t *testing.T) {
	repo, err := repository.NewMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	for names, option := range map[string]registry.Option{
		"TTL 0s":               registry.WithTTL(0),
		"TTL -1s":              registry.WithTTL(-time.Second),
		"TTL 999":              registry.WithTTL(999 * time.Microsecond),
		"IdleBetweenTries 0s":  registry.WithIdleBetweenTries(0),
		"IdleBetweenTries -1s": registry.WithIdleBetweenTries(-time.Second),
		"CacheCapacity 0":      registry.WithCacheCapacity(0),
		"CacheCapacity -1":     registry.WithCacheCapacity(-1),
		"OutageLimit 0s":       registry.WithOutageLimit(0),
		"nil":                  registry.WithPathFor(nil),
	} {
		_, err := registry.New(repo, option)
		if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v, want ErrInvalid that names it", names, err)
		}
	}
	if _, err := registry.New(nil); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("nil repository: %v, want ErrInvalid", err)
	}
	locks, err := registry.New(repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []time.Duration{0, -1, time.Microsecond} {
		if _, err := locks.Obtain("k").LockContext(t.Context(), registry.WithTTL(ttl)); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("TTL %v: %v, want ErrInvalid", ttl, err)
		}
	}
}
