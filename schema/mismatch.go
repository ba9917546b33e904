package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrMissing is matched when there is no lock table of that name. The text
	// says where it was looked for and what creates it.
	ErrMissing = errors.New("schema: no lock table")

	// ErrMismatch is matched by every MismatchError.
	ErrMismatch = errors.New("schema: lock table does not fit")
)

// MismatchError says why a table cannot be used: everything that was found,
// not only the first thing. Its text is the whole report, with the statements,
// over several lines.
type MismatchError struct {
	Table    string    // as it stands in SQL text, such as INT_LOCK or app.INT_LOCK
	Problems []Problem // never empty
}

// Problem is one finding.
type Problem struct {
	// Column is the column concerned, empty if it is the table as a whole, its
	// primary key or an index.
	Column string
	// Found and Want are for people.
	Found, Want string
	// Fix is the SQL that mends it: statements that each end with a semicolon
	// at the end of a line. Read it first: some drop or rewrite the table,
	// which takes the locks away from whoever holds them, so stop the services
	// before. Empty where only you can tell what the thing found is good for.
	Fix string
}

// Is makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// Statements returns the statements of all fixes in the order to run them,
// each once, without semicolons. Problems without a fix remain.
func (e *MismatchError) Statements() []string {
	var all []string
	for _, p := range e.Problems {
		for _, s := range statements(p.Fix) {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

func (e *MismatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "schema: table %s does not fit:", e.Table)
	shown := ""
	for _, p := range e.Problems {
		b.WriteString("\n- ")
		if p.Column != "" {
			b.WriteString("column " + p.Column + ": ")
		}
		fmt.Fprintf(&b, "found %s, want %s", p.Found, p.Want)
		switch p.Fix {
		case "":
		case shown: // a new table mends all; once is enough
			b.WriteString("; run the same as above")
		default:
			b.WriteString("; run:\n    " + strings.ReplaceAll(p.Fix, "\n", "\n    "))
			shown = p.Fix
		}
	}
	return b.String()
}
