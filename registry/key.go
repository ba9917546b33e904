package registry

import (
	"crypto/md5"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

var uuidPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// PathFor maps a lock key to the LOCK_KEY in the table, as Spring does, so
// that Java and Go mean the same row: text that is a UUID in its usual form is
// that UUID in lower case; any other text becomes the version-3 UUID of its
// UTF-8 bytes, without a name space (Java's UUID.nameUUIDFromBytes).
//
// MD5 is for compatibility, not for security: who may choose keys freely can
// make two of them share a lock, but never make one lock two. WithPathFor
// replaces this mapping.
func PathFor(key string) string {
	if uuidPattern.MatchString(key) {
		return strings.ToLower(key)
	}
	sum := uuid.UUID(md5.Sum([]byte(key)))
	sum[6] = sum[6]&0x0f | 0x30 // version 3
	sum[8] = sum[8]&0x3f | 0x80 // RFC 4122's variant
	return sum.String()
}

// checkPath guards the 36 characters of LOCK_KEY against a mapping of the
// application's own. The repository would refuse it too, but only at the first
// lock call and without the key.
func checkPath(key, path string) error {
	ok := len(path) >= 1 && len(path) <= 36 && strings.TrimSpace(path) == path
	for i := 0; ok && i < len(path); i++ {
		ok = path[i] >= ' ' && path[i] <= '~'
	}
	if !ok {
		return invalid("WithPathFor maps key %s to %s: want 1 to 36 printable ASCII characters, no blank at either end",
			quote(key), quote(path))
	}
	return nil
}
