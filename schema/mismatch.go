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

// MismatchError says why what exists under a prefix cannot be used: everything
// that was found, not only the first thing. Its text is the whole report, with
// the statements, over several lines.
type MismatchError struct {
	// Problems is never empty. Those of one object follow each other.
	Problems []Problem
}

// Problem is one finding.
type Problem struct {
	// Object is the table or sequence concerned, as it stands in SQL text, such
	// as INT_LOCK or app.INT_LOCK_TOKEN.
	Object string
	// Column is the column concerned, empty if it is the object as a whole, its
	// primary key or an index.
	Column string
	// Found and Want are for people.
	Found, Want string
	// Fix is the SQL that mends it: statements that each end with a semicolon
	// at the end of a line. Read it first: some drop or rewrite the lock table,
	// which takes the locks away from whoever holds them, and sessions may go on
	// with what a sequence handed them before, so stop the services. Empty where
	// only you can tell what the thing found is good for.
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
	b.WriteString("schema: ")
	object, shown := "", ""
	for _, p := range e.Problems {
		if p.Object != object {
			if object != "" {
				b.WriteString("\n")
			}
			object = p.Object
			b.WriteString(object + " does not fit:")
		}
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
