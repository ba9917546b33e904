package registry

import (
	"crypto/md5"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/intlock/intlock/repository"
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

// CheckKey reports, with an error that matches ErrInvalid, a key that lock calls
// would refuse: one that WithPathFor's mapping, or the repository's own, has no
// LOCK_KEY for. With the default mapping every key is good.
func (r *JdbcLockRegistry) CheckKey(key string) error {
	_, err := r.path(key)
	return err
}

// path maps a key.
func (r *JdbcLockRegistry) path(key string) (string, error) {
	if r.mapper != nil {
		path, err := r.mapper.PathFor(key)
		if err != nil {
			return "", invalid("key %s: %w", quote(key), err)
		}
		return path, nil
	}
	path := r.config.pathFor(key)
	return path, checkPath(key, path)
}

// checkPath guards the 36 characters of LOCK_KEY against a mapping of the
// application's own. The repository would refuse it too, but without the key.
func checkPath(key, path string) error {
	if err := repository.CheckKey(path); err != nil {
		return invalid("WithPathFor of key %s: %w", quote(key), err)
	}
	return nil
}
