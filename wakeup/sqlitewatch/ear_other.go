//go:build !linux

package sqlitewatch

import "errors"

// listen is for Linux alone so far.
func listen([]string) (ear, error) { return nil, errors.ErrUnsupported }
