package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// survey is what is there under a prefix.
type survey struct {
	target
	found    [partCount]*table    // nil what is missing
	problems [partCount][]Problem // of a part that is missing: that it is
	noLock   error                // matches ErrMissing, nil if there is a lock table
}

func (t target) look(ctx context.Context, db DB) (*survey, error) {
	s := &survey{target: t}
	for i, p := range t.parts {
		found, err := t.dialect.read(ctx, db, p)
		switch {
		case err == nil:
			s.found[i] = found
		case !errors.Is(err, ErrMissing):
			if i != lockPart {
				err = fmt.Errorf("%s: %w", p.name.sql, err)
			}
			return nil, err
		case i == lockPart:
			s.noLock = err
		}
	}
	s.judge()
	return s, nil
}

// judge fills in the problems.
func (s *survey) judge() {
	first := s.first()
	creates := s.creates()
	for i, p := range s.parts {
		switch found := s.found[i]; {
		case found == nil:
			s.problems[i] = []Problem{{
				Found: "nothing of that name",
				Want:  p.is + ": " + p.use,
				Fix:   creates[i] + ";",
			}}
		case found.schema != first.schema && !found.temporary && !first.temporary:
			s.problems[i] = []Problem{{
				Found: "one in " + found.schema,
				Want:  "one in " + first.schema + ", beside " + first.name.sql + ": services that see only one of the two places would use different ones",
			}}
		default:
			s.problems[i] = compare(found, s.dialect)
		}
		for j := range s.problems[i] {
			s.problems[i][j].Object = p.name.sql
		}
	}
}

// first is the first part that was found, nil if none was.
func (s *survey) first() *table {
	for _, found := range s.found {
		if found != nil {
			return found
		}
	}
	return nil
}

// creates lists the statement for each part. What is missing belongs beside
// what is there: on Postgres that may be another schema than the first of the
// search_path, and services with another search_path would not find it.
func (s *survey) creates() []string {
	name := s.parts[lockPart].name
	if first := s.first(); first != nil {
		name = name.in(first.home())
	}
	return statements(render(s.dialect.vendor(), name, creates))
}

// missing lists the statements that create what is missing.
func (s *survey) missing() []string {
	var all []string
	for i, statement := range s.creates() {
		if s.found[i] == nil {
			all = append(all, statement)
		}
	}
	return all
}

// unfit tells whether something that exists does not fit.
func (s *survey) unfit() bool {
	for i, found := range s.found {
		if found != nil && len(s.problems[i]) > 0 {
			return true
		}
	}
	return false
}

// mismatch is a MismatchError of all problems, or nil if there are none.
func (s *survey) mismatch() error {
	// A prefix that means something else altogether needs no more tables.
	if lock := s.found[lockPart]; lock != nil && len(notOurs(lock, s.dialect)) > 0 {
		return mismatch(s.problems[lockPart])
	}
	return mismatch(slices.Concat(s.problems[:]...))
}

// foreign is a MismatchError of what is not ours, or nil.
func (s *survey) foreign() error {
	var problems []Problem
	for i, found := range s.found {
		if found != nil && len(notOurs(found, s.dialect)) > 0 {
			problems = append(problems, s.problems[i]...)
		}
	}
	return mismatch(problems)
}

func mismatch(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &MismatchError{Problems: problems}
}
