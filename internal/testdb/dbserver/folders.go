//go:build unix

package dbserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const dirPrefix = "intlock-testdb-"

// CacheFolder is what outlives a run: MySQL's files and initialised data
// folders.
func CacheFolder() (string, error) {
	if cache := os.Getenv("INTLOCK_CACHE"); cache != "" {
		return filepath.Abs(cache)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; set INTLOCK_CACHE to a folder", err)
	}
	return filepath.Join(base, "intlock"), nil
}

// CleanCache removes what we put into the cache, by name: INTLOCK_CACHE may
// be a folder that holds other things too.
func CleanCache() error {
	cache, err := CacheFolder()
	if err != nil {
		return err
	}
	for _, pattern := range []string{"data", "mysql", "mysql.lock", "apt.lock", ".mysql-*"} {
		found, _ := filepath.Glob(filepath.Join(cache, pattern))
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	_ = os.Remove(cache) // if it is empty now
	return nil
}

// scratch is a folder that the unprivileged users can reach too.
func scratch() (string, error) {
	candidates := []string{os.TempDir(), "/tmp", "/var/tmp"}
	if os.Geteuid() != 0 {
		return candidates[0], nil
	}
	for _, dir := range candidates {
		if open, err := reachable(dir); err == nil && open {
			return dir, nil
		}
	}
	return "", fmt.Errorf("none of %s can be reached by an unprivileged user; set TMPDIR to a folder that can", strings.Join(candidates, ", "))
}

// reachable is true if everybody may pass through all the folders to dir.
func reachable(dir string) (bool, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return false, err
		}
		if info.Mode()&0o001 == 0 {
			return false, nil
		}
		if dir == filepath.Dir(dir) {
			return true, nil
		}
		dir = filepath.Dir(dir)
	}
}

// sweep removes what runs left behind that were killed outright. Their
// servers died with them; a living run holds its lock.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*"))
	for _, dir := range dirs {
		name := filepath.Join(dir, "lock")
		if _, err := os.Stat(name); err != nil {
			continue // just being made
		}
		if lock, err := LockFile(name, false); err == nil {
			_ = os.RemoveAll(dir)
			lock.Close()
		}
	}
}
