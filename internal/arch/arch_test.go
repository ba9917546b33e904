// Package arch holds the picture in ARCHITECTURE.md to the imports.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/intlock/intlock"

// allowed says what each package may import, apart from the standard library:
// the arrows of the picture. Tests of a package may also use what is in forTests.
var allowed = map[string][]string{
	"internal/vendor":           {},
	"repository":                {"internal/vendor", "github.com/jmoiron/sqlx", "github.com/google/uuid"},
	"repository/repositorytest": {"repository"},
	"schema":                    {"internal/vendor"},
	"registry":                  {"repository", "renew", "github.com/google/uuid"},
	"registry/registrytest":     {"registry", "repository"},
	"renew":                     {},
	"wakeup/pglisten":           {"internal/vendor", drivers},
	"wakeup/sqlitewatch":        {},
	"fencing":                   {"repository", "registry", "internal/vendor", "github.com/jmoiron/sqlx"},
	"schedule":                  {"registry", "repository"},
	"leader":                    {"registry"},
	"middleware":                {"registry"},
	"plugin":                    {"registry", "leader"},
	"examples/aggregator":       {"registry", "repository", "schema", "fencing", "internal/opendb", "github.com/jmoiron/sqlx", "github.com/google/uuid"},
	"examples/loan":             {"registry", "repository", "schema", "middleware", "internal/opendb", "github.com/jmoiron/sqlx", "github.com/google/uuid"},
	"cmd/intlock":               {"registry", "repository", "schema", "internal/opendb", "github.com/jmoiron/sqlx"},
	"internal/opendb":           {"github.com/jmoiron/sqlx", drivers},
	"internal/testdb":           {"internal/testdb/dbserver", "internal/vendor", drivers},
	"internal/testdb/dbserver":  {"internal/vendor", drivers},
	"internal/testdb/serve":     {"internal/testdb", "internal/testdb/dbserver", "internal/vendor"},
	"internal/arch":             {},
	"internal/mutants":          {},
}

// drivers stands for the three packages that open connections.
const drivers = "the database drivers"

var driverPackages = []string{"github.com/lib/pq", "github.com/go-sql-driver/mysql", "modernc.org/sqlite"}

var forTests = []string{"internal/testdb", "internal/vendor", "repository", "repository/repositorytest",
	"registry", "registry/registrytest", "schema", "fencing", "wakeup/pglisten", "wakeup/sqlitewatch", "github.com/jmoiron/sqlx", drivers}

func TestPicture(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && name != ".." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() && file != root {
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
				return fs.SkipDir // a module of its own, which no user's build reaches
			}
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(relative))
		seen[dir] = true
		may, ok := allowed[dir]
		if !ok {
			t.Errorf("package %s is not in the picture: add it to ARCHITECTURE.md and to this test", dir)
			return nil
		}
		if strings.HasSuffix(file, "_test.go") {
			may = append(slices.Clone(may), append([]string{dir}, forTests...)...)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if !strings.Contains(strings.Split(name, "/")[0], ".") {
				continue // the standard library
			}
			name = strings.TrimPrefix(name, module+"/")
			isDriver := slices.ContainsFunc(driverPackages, func(d string) bool { return name == d || strings.HasPrefix(name, d+"/") })
			if !slices.Contains(may, name) && !(isDriver && slices.Contains(may, drivers)) {
				t.Errorf("%s imports %s: the picture has no such arrow", relative, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"registry", "repository", "schema"} {
		if !seen[must] {
			t.Errorf("package %s was not found: this test looks in the wrong place", must)
		}
	}
}

// TestWall: no SQL and no database above the wall, no waiting below it.
func TestWall(t *testing.T) {
	for dir, forbidden := range map[string][]string{
		"registry":   {"database/sql", "database/sql/driver"},
		"renew":      {"database/sql", "database/sql/driver"},
		"repository": {"math/rand", "math/rand/v2", "os/signal"},
	} {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				if name, _ := strconv.Unquote(spec.Path.Value); slices.Contains(forbidden, name) {
					t.Errorf("%s imports %s", file, name)
				}
			}
			if dir == "repository" {
				noWaiting(t, file)
			}
		}
	}
}

// noWaiting looks for what makes code wait or work on its own: a goroutine, a
// select, a channel receive, a timer.
func noWaiting(t *testing.T, file string) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "starts a goroutine"
		case *ast.SelectStmt:
			what = "selects"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				what = "receives from a channel"
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
				what = "uses time." + n.Sel.Name
			}
		}
		if what != "" {
			t.Errorf("%s %s: waiting belongs above the wall", set.Position(n.Pos()), what)
		}
		return true
	})
}
