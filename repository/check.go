package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// checkTable is the look at the table that New takes: one read-only statement
// that returns no rows but the columns' names and types. It catches what would
// make every later call fail, or worse, quietly go wrong. schema.Check looks
// closer: at lengths, keys and constraints.
func (r *DefaultLockRepository) checkTable(ctx context.Context) error {
	rows, err := r.db.QueryContext(ctx, "SELECT * FROM "+r.table+" WHERE 1 = 0")
	if err != nil {
		return r.wrap("start check", err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return r.wrap("start check", err)
	}
	byName := make(map[string]columnType)
	for _, t := range types {
		column := columnType{name: strings.ToUpper(t.DatabaseTypeName())}
		column.precision, _, column.hasPrecision = t.DecimalSize()
		byName[strings.ToUpper(t.Name())] = column
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return r.wrap("start check", err)
	}
	return r.checkColumns(byName)
}

// checkSetting refuses a setting of the connection that would make locks
// invisible to everybody else.
func (r *DefaultLockRepository) checkSetting(ctx context.Context) error {
	if r.dialect.setting == "" {
		return nil
	}
	on := 0
	if err := r.ask(ctx, r.dialect.setting, &on); err != nil {
		return err
	}
	if on != 1 {
		return invalid("%s", r.dialect.settingWhy)
	}
	return nil
}

// ask reads the one value of a query that is not worth preparing.
func (r *DefaultLockRepository) ask(ctx context.Context, query string, value any) error {
	rows, err := r.db.QueryContext(ctx, query)
	if err != nil {
		return r.wrap("start check", err)
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(value)
	}
	return r.wrap("start check", errors.Join(err, rows.Err(), rows.Close()))
}

type columnType struct {
	name         string // empty if the driver, or a wrapper around it, does not tell
	precision    int64
	hasPrecision bool
}

func (r *DefaultLockRepository) checkColumns(have map[string]columnType) error {
	_, spring7 := have["EXPIRED_AFTER"]
	switch {
	case spring7 && r.config.spring6 != 0:
		return r.unusable("it has a column EXPIRED_AFTER, so it is not the layout of Spring 6.5 and older",
			"leave out WithSpring6Layout")
	case !spring7 && r.config.spring6 == 0:
		return r.unusable("column EXPIRED_AFTER is missing, as in the layout of Spring 6.5 and older",
			"if Java services of that age share the table use WithSpring6Layout, else run: "+r.addColumn("EXPIRED_AFTER")+
				" (schema.Check lists everything that is missing)")
	}
	var missing, fixes []string
	for _, name := range []string{"LOCK_KEY", "REGION", "CLIENT_ID", "CREATED_DATE"} {
		if _, ok := have[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return r.unusable("it is not a lock table: columns missing: "+strings.Join(missing, ", "),
			"choose another prefix, or drop it and run schema.Apply")
	}
	for _, name := range []string{"ATTEMPT", "HOLDER", "LOCK_NAME"} {
		if _, ok := have[name]; !ok {
			missing, fixes = append(missing, name), append(fixes, r.addColumn(name))
		}
	}
	if len(missing) > 0 {
		return r.unusable("it is Spring's own table: columns missing: "+strings.Join(missing, ", "),
			"run: "+strings.Join(fixes, "; "))
	}
	expires := "EXPIRED_AFTER"
	if r.config.spring6 != 0 {
		expires = "CREATED_DATE"
	}
	column := have[expires]
	if column.name != "" && !slices.Contains(r.dialect.timeTypes, column.name) {
		return r.unusable(fmt.Sprintf("column %s has type %s, want %s", expires, column.name, r.dialect.timeTypes[0]),
			"see schema.Check for the statement that changes it")
	}
	// Whole seconds would round a lease up or down by half a second.
	if column.name == "DATETIME" && column.hasPrecision && column.precision < 3 {
		return r.unusable(fmt.Sprintf("column %s has type DATETIME(%d), which cannot hold milliseconds", expires, column.precision),
			fmt.Sprintf("run: ALTER TABLE %s MODIFY %s DATETIME(6) NOT NULL", r.table, expires))
	}
	return nil
}

func (r *DefaultLockRepository) addColumn(name string) string {
	return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", r.table, name, r.dialect.columnType[name])
}

func (r *DefaultLockRepository) unusable(found, remedy string) error {
	return &opError{op: "start check", table: r.table, kind: ErrTable, err: errors.New(found), hint: remedy}
}
