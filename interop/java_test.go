package interop

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
)

// The versions of Spring Integration that are run. The last one has the layout of
// 6.5 and older.
const newest, before, spring6 = "7.1.2", "7.0.7", "6.5.6"

func TestMain(m *testing.M) {
	for _, version := range []string{newest, before, spring6} {
		if err := build(version); err != nil {
			fmt.Fprintf(os.Stderr, "interop: build the Java side with Spring Integration %s: %v\n", version, err)
			os.Exit(1)
		}
	}
	testdb.Main(m, nil)
}

func target(version string) string { return filepath.Join("java", "target", version) }

// build compiles the driver with a version of Spring Integration, unless that is done.
func build(version string) error {
	done := filepath.Join(target(version), "done")
	source, err := os.Stat(filepath.Join("java", "src", "main", "java", "intlock", "Driver.java"))
	if err != nil {
		return err
	}
	if built, err := os.Stat(done); err == nil && built.ModTime().After(source.ModTime()) {
		return nil
	}
	cmd := exec.Command("mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-Dspring-integration="+version,
		"-Dtarget=target/"+version, "-DoutputDirectory=target/"+version+"/lib")
	cmd.Dir = "java"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return os.WriteFile(done, nil, 0o644)
}

// each runs f on the databases that Java's drivers here serve.
func each(t *testing.T, f func(t *testing.T, db *testdb.DB)) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		if db.Driver != "sqlite" { // Spring has no script for it, and no lock works on it
			f(t, db)
		}
	})
}

// java is a process with the real JdbcLockRegistry.
type java struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	events chan string
}

func jdbc(db *testdb.DB) (address, user, password string) {
	if u, err := url.Parse(db.DSN); err == nil && u.Scheme == "postgres" {
		password, _ = u.User.Password()
		return "jdbc:postgresql://" + u.Host + u.Path, u.User.Username(), password
	}
	who, rest, _ := strings.Cut(db.DSN, "@tcp(")
	host, rest, _ := strings.Cut(rest, ")/")
	name, _, _ := strings.Cut(rest, "?")
	user, password, _ = strings.Cut(who, ":")
	return "jdbc:mariadb://" + host + "/" + name + "?allowPublicKeyRetrieval=true", user, password
}

func start(t *testing.T, db *testdb.DB, version string, env ...string) *java {
	t.Helper()
	address, user, password := jdbc(db)
	cmd := exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", filepath.Join(target(version), "classes")+":"+filepath.Join(target(version), "lib", "*"), "intlock.Driver")
	cmd.Env = append(append(os.Environ(), "JDBC_URL="+address, "JDBC_USER="+user, "JDBC_PASSWORD="+password), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	j := &java{t: t, cmd: cmd, in: in, lines: make(chan string, 100), events: make(chan string, 100)}
	go func() {
		defer close(j.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			if event, ok := strings.CutPrefix(scan.Text(), "event "); ok {
				j.events <- event
			} else {
				j.lines <- scan.Text()
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() && errs.Len() > 0 {
			t.Logf("java says: %.2000s", errs.String())
		}
	})
	if line := j.line(60 * time.Second); line != "ready" {
		t.Fatalf("java does not start: %q\n%s", line, errs.String())
	}
	return j
}

func (j *java) line(limit time.Duration) string {
	j.t.Helper()
	select {
	case line, ok := <-j.lines:
		if !ok {
			j.t.Fatal("java has ended")
		}
		return line
	case <-time.After(limit):
		j.t.Fatal("java does not answer")
	}
	return ""
}

// send sends a command, whose answer answer reads.
func (j *java) send(words ...any) {
	j.t.Helper()
	_, err := fmt.Fprintln(j.in, words...)
	must(j.t, err)
}

func (j *java) answer() (string, error) {
	j.t.Helper()
	verdict, text, _ := strings.Cut(j.line(90*time.Second), " ")
	if verdict != "ok" {
		return "", fmt.Errorf("%s", text)
	}
	return text, nil
}

// do executes a command that must not fail.
func (j *java) do(words ...any) string {
	j.t.Helper()
	text, err := j.try(words...)
	if err != nil {
		j.t.Fatalf("java %v: %v", words, err)
	}
	return text
}

func (j *java) try(words ...any) (string, error) {
	j.t.Helper()
	j.send(words...)
	return j.answer()
}

// locks and refused try a lock at once.
func (j *java) locks(key string) {
	j.t.Helper()
	if got := j.do("try", hexed(key), 3000); got != "yes" {
		j.t.Fatalf("java cannot have %q: %s", key, got)
	}
}

func (j *java) refused(key string) {
	j.t.Helper()
	if got := j.do("try", hexed(key), 50); got != "no" {
		j.t.Fatalf("java had %q: %s", key, got)
	}
}

func hexed(key string) string { return hex.EncodeToString([]byte(key)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// springScript is the CREATE TABLE of the lock table in Spring's own script for a
// vendor.
func springScript(t *testing.T, version, vendor string) string {
	t.Helper()
	jars, err := filepath.Glob(filepath.Join(target(version), "lib", "spring-integration-jdbc-*.jar"))
	if err != nil || len(jars) != 1 {
		t.Fatalf("%v, %v", jars, err)
	}
	jar, err := zip.OpenReader(jars[0])
	must(t, err)
	defer jar.Close()
	name := map[string]string{"postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}[vendor]
	file, err := jar.Open("org/springframework/integration/jdbc/schema-" + name + ".sql")
	must(t, err)
	defer file.Close()
	text, err := io.ReadAll(file)
	must(t, err)
	for _, statement := range strings.Split(string(text), ";") {
		if strings.Contains(statement, "CREATE TABLE INT_LOCK") {
			return statement[strings.Index(statement, "CREATE TABLE"):]
		}
	}
	t.Fatal("no INT_LOCK in Spring's script")
	return ""
}
