package repository

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// listParameters are those that lists are sent in.
var listParameters = []string{"all_keys", "all_attempts", "all_ttls", "all_names", "requests"}

// arrays writes a list as the texts of Postgres arrays, one for each column.
// Taking them apart costs the server less than JSON does.
func arrays(v values, items []item) {
	size := 0
	for _, it := range items {
		size += len(it.name) + len(`"",`)
	}
	var keys, attempts, ttls, names strings.Builder
	keys.Grow(len(items)*len(`"acbd18db-4cc2-385c-adef-654fccc4a4d8",`) + 2)
	attempts.Grow(len(items)*len("9223372036854775807,") + 2)
	ttls.Grow(len(items)*len("10000000,") + 2)
	names.Grow(size + 2)
	before := byte('{')
	for i := range items {
		it := &items[i]
		arrayText(&keys, before, it.key)
		arrayNumber(&attempts, before, it.attempt)
		arrayNumber(&ttls, before, it.ttl)
		arrayText(&names, before, it.name)
		before = ','
	}
	for name, b := range map[string]*strings.Builder{"all_keys": &keys, "all_attempts": &attempts, "all_ttls": &ttls, "all_names": &names} {
		b.WriteByte('}')
		v[name] = b.String()
	}
}

func arrayNumber(b *strings.Builder, before byte, n int64) {
	var digits [20]byte
	b.WriteByte(before)
	b.Write(strconv.AppendInt(digits[:0], n, 10))
}

// arrayText writes an element that may have any character in it.
func arrayText(b *strings.Builder, before byte, s string) {
	b.WriteByte(before)
	b.WriteByte('"')
	for {
		i := strings.IndexAny(s, `"\`)
		if i < 0 {
			break
		}
		b.WriteString(s[:i])
		b.WriteByte('\\')
		b.WriteByte(s[i])
		s = s[i+1:]
	}
	b.WriteString(s)
	b.WriteByte('"')
}

// list writes a list as one JSON text: [["key",attempt,ttl,"name"],...]. It is
// ASCII, so that the connection's character set does not matter.
func list(v values, items []item) {
	size := 2
	for _, it := range items {
		size += len(`["",,,""],`) + len(it.key) + 20 + 9 + len(it.name)
	}
	b := make([]byte, 0, size)
	b = append(b, '[')
	for i := range items {
		it := &items[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(b, '['), it.key)
		b = strconv.AppendInt(append(b, ','), it.attempt, 10)
		b = strconv.AppendInt(append(b, ','), it.ttl, 10)
		b = append(appendJSON(append(b, ','), it.name), ']')
	}
	v["requests"] = string(append(b, ']'))
}

// appendJSON appends a JSON string.
func appendJSON(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	unit := func(u uint16) {
		b = append(b, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c >= ' ' && c < utf8.RuneSelf:
			b = append(b, byte(c))
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			unit(uint16(high))
			unit(uint16(low))
		default:
			unit(uint16(c))
		}
	}
	return append(b, '"')
}
