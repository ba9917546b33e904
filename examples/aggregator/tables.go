package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// tables are the example's own. A RUN_ID keeps runs on one server apart.
//
// AGG_OUTBOX has no unique key on the group, which a careful design would add.
// It would turn a second release into an error, and this example is about what
// happens when nothing but the lock stands against that.
var tables = map[string]string{
	"AGG_GROUP": `(
  RUN_ID      VARCHAR(16) NOT NULL,
  GROUP_KEY   VARCHAR(64) NOT NULL,
  COMPLETE    INTEGER     NOT NULL,
  LAST_WORKER INTEGER     NOT NULL,
  PRIMARY KEY (RUN_ID, GROUP_KEY)
)`,
	"AGG_MESSAGE": `(
  RUN_ID      VARCHAR(16) NOT NULL,
  GROUP_KEY   VARCHAR(64) NOT NULL,
  SEQ         INTEGER     NOT NULL,
  AMOUNT      BIGINT      NOT NULL,
  PRIMARY KEY (RUN_ID, GROUP_KEY, SEQ)
)`,
	"AGG_OUTBOX": `(
  ID          VARCHAR(36) NOT NULL PRIMARY KEY,
  RUN_ID      VARCHAR(16) NOT NULL,
  GROUP_KEY   VARCHAR(64) NOT NULL,
  WORKER      INTEGER     NOT NULL,
  RESULT      TEXT        NOT NULL
)`,
}

func (s *store) create(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		if _, err := s.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+name+" "+tables[name]); err != nil {
			return fmt.Errorf("create table %s: %w", name, err)
		}
	}
	return nil
}

// remove deletes the rows of this run, and the tables too if no other run has
// rows in them. It tells whether it dropped the tables.
func (s *store) remove(ctx context.Context) (dropped bool, err error) {
	for name := range tables {
		if _, err := s.db.ExecContext(ctx, s.db.Rebind("DELETE FROM "+name+" WHERE RUN_ID = ?"), s.run); err != nil {
			return false, fmt.Errorf("delete from %s: %w", name, err)
		}
	}
	var others int
	if err := s.db.GetContext(ctx, &others, "SELECT COUNT(*) FROM AGG_GROUP"); err != nil || others > 0 {
		return false, err
	}
	for name := range tables {
		if _, err := s.db.ExecContext(ctx, "DROP TABLE "+name); err != nil {
			return false, fmt.Errorf("drop table %s: %w", name, err)
		}
	}
	return true, nil
}
