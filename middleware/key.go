package middleware

import (
	"fmt"
	"net/url"
	"strings"
)

// maxKey is the longest key that is accepted: keys come from requests.
const maxKey = 1024

// Key makes one key of several parts, such as a user's id and a loan's class, so
// that different parts never make the same key, whatever is in them.
func Key(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.QueryEscape(part)
	}
	return strings.Join(escaped, "/")
}

// lockKey is the lock's key of a request's. The operation comes first, so that no
// text in a request can be the key of another operation, nor a UUID, which would
// be taken for a row's own key.
func (g *Guard) lockKey(key string) (string, error) {
	switch {
	case key == "":
		return "", fmt.Errorf("%w: it is empty", ErrKey)
	case len(key) > maxKey:
		return "", fmt.Errorf("%w: it has %d bytes, of %d that are allowed", ErrKey, len(key), maxKey)
	}
	return url.QueryEscape(g.operation) + ":" + key, nil
}
