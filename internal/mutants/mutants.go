package main

// mutant is one deliberate fault, and where it should be noticed.
type mutant struct {
	name      string
	edits     []edit
	pkg, test string
}

// edit replaces a text that occurs once in a file.
type edit struct{ file, old, new string }

// The faults that lock libraries are known for.
var mutants = []mutant{
	{"release without a look at the owner", []edit{{"repository/dialect.go",
		"deleteText = `DELETE FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region AND {mine}`",
		"deleteText = `DELETE FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region AND :client_id IS NOT NULL AND ATTEMPT = :attempt`"}},
		"./repository", "TestDatabases/plain/sqlite"},
	{"release without a look at the attempt", []edit{{"repository/dialect.go",
		"deleteText = `DELETE FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region AND {mine}`",
		"deleteText = `DELETE FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region AND CLIENT_ID = :client_id AND :attempt IS NOT NULL`"}},
		"./repository", "TestDatabases/plain/sqlite"},
	{"release that found no row taken for a good one", []edit{{"registry/giveback.go",
		"case !deleted && !doubt:", "case doubt && !doubt:"}},
		"./registry", "TestMemory"},
	{"answer to a lock call accepted after its TTL", []edit{{"registry/acquire.go",
		"if err == nil && out.Acquired && asked.remaining() <= 0 {", "if false {"}},
		"./registry", "TestMemory|TestTrust"},
	{"answer to a renewal trusted from when it came", []edit{{"registry/renew.go",
		"asked.ttl = min(asked.ttl, status.Remaining)", "asked = trust{time.Now(), asked.ttl}"}},
		"./registry", "TestMemory"},
	{"renewal without a look at the owner", []edit{{"repository/dialect.go",
		"CLIENT_ID = :client_id AND ATTEMPT IN ({attempts}) AND", ":client_id IS NOT NULL AND 0 NOT IN ({attempts}) AND"}},
		"./repository", "TestDatabases/plain/sqlite"},
	{"watchdog that waits for the driver", []edit{
		{"renew/scheduler.go", "go s.request(batch, ttl)", "s.mu.Unlock(); s.request(batch, ttl); s.mu.Lock()"},
		{"registry/renew.go", "statuses, err := await(answers, limit, nil, nil)", "a := <-answers; statuses, err := a.value, a.err"}},
		"./registry", "TestMemory/leases/Loss"},
	{"token drawn before the row is owned", []edit{
		{"repository/postgres.go", "`WITH free AS (", "`WITH early AS (SELECT nextval('{tokens}') AS TOKEN), free AS ("},
		{"repository/postgres.go", "SELECT {row}\n  WHERE EXISTS (SELECT 1 FROM free)\n    OR NOT EXISTS (SELECT 1 FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region)", "SELECT {row} FROM early\n  WHERE TOKEN > 0 AND (EXISTS (SELECT 1 FROM free)\n    OR NOT EXISTS (SELECT 1 FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region))"},
		{"repository/postgres.go", "postgresAcquire(\"nextval('{tokens}') AS TOKEN\"", "postgresAcquire(\"(SELECT TOKEN FROM early) AS TOKEN\""}},
		"./repository", "TestTokenOrder/postgres"},
	{"expiry by the start of the transaction", []edit{{"repository/postgres.go",
		"clock:    \"(statement_timestamp() AT", "clock:    \"(now() AT"}},
		"./repository", "TestAssertInOldTransaction/postgres"},
}
