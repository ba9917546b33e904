package schema

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/intlock/intlock/internal/vendor"
)

// The table of ShedLock's documentation. SQLite, which it does not know, keeps Unix
// milliseconds. The DEFAULT of locked_at keeps old MySQL and MariaDB servers from
// giving lock_until one that changes it with every update.
var shedlockTables = map[string]string{
	vendor.Postgres: `CREATE TABLE IF NOT EXISTS {table} (
    name       VARCHAR(64)  NOT NULL,
    lock_until TIMESTAMP    NOT NULL,
    locked_at  TIMESTAMP    NOT NULL,
    locked_by  VARCHAR(255) NOT NULL,
    PRIMARY KEY (name)
)`,
	vendor.MySQL: `CREATE TABLE IF NOT EXISTS {table} (
    name       VARCHAR(64)  NOT NULL,
    lock_until TIMESTAMP(3) NOT NULL,
    locked_at  TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    locked_by  VARCHAR(255) NOT NULL,
    PRIMARY KEY (name)
)`,
	vendor.SQLite: `CREATE TABLE IF NOT EXISTS {table} (
    name       TEXT    NOT NULL,
    lock_until INTEGER NOT NULL,
    locked_at  INTEGER NOT NULL,
    locked_by  TEXT    NOT NULL,
    PRIMARY KEY (name)
) WITHOUT ROWID`,
}

// DefaultShedLockTable is the name of ShedLock's table.
const DefaultShedLockTable = "shedlock"

var shedlockName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// ShedLockScript returns the statement that creates a table of ShedLock's shape, for
// repository.NewShedLock: letters, digits and underscores, optionally behind a
// schema name and a dot. It is what ShedLock's documentation says.
func ShedLockScript(name, table string) (string, error) {
	text, ok := shedlockTables[strings.Replace(name, vendor.MariaDB, vendor.MySQL, 1)]
	switch {
	case !ok:
		return "", fmt.Errorf("schema: vendor %q: want one of %s", name, strings.Join(vendor.All(), ", "))
	case !shedlockName.MatchString(table):
		return "", fmt.Errorf("schema: table %q: want letters, digits and underscores, optionally behind a schema name and a dot", table)
	}
	return strings.Replace(text, "{table}", table, 1) + ";\n", nil
}

// ApplyShedLock creates the table if it is not there. One that is there stays as it
// is; repository.NewShedLock looks whether it fits.
func ApplyShedLock(ctx context.Context, db DB, table string) error {
	err := retryBusy(ctx, func() error {
		name, err := vendor.Detect(ctx, db)
		if err != nil {
			return err
		}
		text, err := ShedLockScript(name, table)
		if err != nil {
			return err
		}
		statement := strings.TrimSuffix(strings.TrimSpace(text), ";")
		if name == vendor.Postgres {
			statement = serialised([]string{statement})
		}
		_, err = db.ExecContext(ctx, statement)
		return err
	})
	if err != nil {
		return fmt.Errorf("schema: apply ShedLock's table: %w", err)
	}
	return nil
}
