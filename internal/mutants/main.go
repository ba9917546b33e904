// Command mutants checks that the tests can fail. It puts faults into the code,
// one at a time, and runs the tests that should notice; a fault that none
// notices fails the check. The sources stay as they are: the compiler is given
// a changed copy.
//
//	go run ./internal/testdb/serve -- go run ./internal/mutants
//	go run ./internal/mutants -run watchdog
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	run := flag.String("run", "", "only the mutants whose name matches this `regexp`")
	flag.Parse()
	only, err := regexp.Compile(*run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	passed, failed := 0, 0
	for _, m := range mutants {
		if !only.MatchString(m.name) {
			continue
		}
		start := time.Now()
		by, err := m.run()
		took := time.Since(start).Round(100 * time.Millisecond)
		if err != nil {
			failed++
			fmt.Printf("FAIL  %s (%v): %v\n", m.name, took, err)
			continue
		}
		passed++
		fmt.Printf("ok    %s (%v): noticed by %s\n", m.name, took, by)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// run puts the fault in and returns the test that failed because of it.
func (m mutant) run() (by string, err error) {
	folder, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, e := range m.edits {
		path, err := filepath.Abs(e.file)
		if err != nil {
			return "", err
		}
		source := path
		if earlier, ok := overlay.Replace[path]; ok {
			source = earlier
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want it once: adapt the mutant to the code", e.file, e.old, n)
		}
		changed := filepath.Join(folder, fmt.Sprint(len(overlay.Replace), filepath.Base(path)))
		if source != path {
			changed = source
		}
		if err := os.WriteFile(changed, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[path] = changed
	}
	description, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, description, 0o600); err != nil {
		return "", err
	}
	test := exec.Command("go", "test", "-overlay", file, "-count=1", "-timeout=3m", "-run", m.test, m.pkg)
	out, err := test.CombinedOutput()
	var exit *exec.ExitError
	switch found := failure.FindAllSubmatch(out, -1); {
	case err == nil:
		return "", errors.New("no test noticed it")
	case !errors.As(err, &exit), found == nil:
		return "", fmt.Errorf("%w, but no test failed:\n%s", err, out)
	default:
		return string(found[len(found)-1][1]), nil
	}
}

// failure is how go test names a test that failed; the last is the innermost.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
