package main

import (
	"context"
	"database/sql"
	"os"
	"strings"
)

// opened are the pools there are. They are opened one after the other.
var opened []*sql.DB

// closeAll ends what a group of cases has opened: servers have few connections.
func closeAll(ctx context.Context, lockers ...locker) {
	for _, l := range lockers {
		if ours, ok := l.(intlocks); ok {
			ours.Close(ctx)
		}
	}
	for _, db := range opened {
		db.Close()
	}
	opened = nil
}

// openDB opens a pool on the database of the run.
func openDB(vendor string) (*sql.DB, error) {
	driver := map[string]string{"postgres": "postgres", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}[vendor]
	dsn := os.Getenv("BENCH_" + strings.ToUpper(vendor))
	var db *sql.DB
	var err error
	if counting.Load() {
		db, err = openCounted(vendor, dsn)
	} else {
		db, err = sql.Open(driver, dsn)
	}
	if err != nil {
		return nil, err
	}
	opened = append(opened, db)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}
