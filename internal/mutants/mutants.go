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
	{"operator's release without a look at who was seen", []edit{{"repository/force.go",
		"AND CLIENT_ID = :seen_client AND COALESCE(ATTEMPT, 0) = :seen_attempt AND", "AND :seen_client IS NOT NULL AND :seen_attempt IS NOT NULL AND"}},
		"./repository", "TestForceRelease/Spring_7/sqlite"},
	{"release that found no row taken for a good one", []edit{{"registry/giveback.go",
		"case !deleted && !doubt:", "case doubt && !doubt:"}},
		"./registry", "TestMemory"},
	{"answer to a lock call accepted after its TTL", []edit{{"registry/acquire.go",
		"if err == nil && out.Acquired && asked.at(now) <= 0 {", "if false {"}},
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
		"./registry", "TestMemory/tokens=false,batching=true,handOver=true/leases/Loss"},
	{"token drawn before the row is owned", []edit{
		{"repository/postgres.go", "`WITH free AS (", "`WITH early AS (SELECT nextval('{tokens}') AS TOKEN), free AS ("},
		{"repository/postgres.go", "SELECT {row}\n  WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region)\n    OR EXISTS (SELECT 1 FROM free)", "SELECT {row} FROM early\n  WHERE TOKEN > 0 AND (NOT EXISTS (SELECT 1 FROM {table} WHERE LOCK_KEY = :lock_key AND REGION = :region)\n    OR EXISTS (SELECT 1 FROM free))"},
		{"repository/postgres.go", "postgresAcquire(\"nextval('{tokens}') AS TOKEN\"", "postgresAcquire(\"(SELECT TOKEN FROM early) AS TOKEN\""}},
		"./repository", "TestTokenOrder/postgres"},
	{"lease handed on with the token it had", []edit{{"registry/handover.go",
		"next.token = g.token + 1", "next.token = g.token"}},
		"./registry", "TestMemory/tokens=true"},
	{"lost answer to a batch taken for a refusal of each", []edit{{"registry/lane.go",
		"case late || err != nil && unknown(err):", "case late:"}},
		"./registry", "TestLane"},
	{"waiter that is not woken once it is registered", []edit{{"wakeup/pglisten/listener.go",
		"waiting := slices.Collect(maps.Keys(b.waiting))", "waiting := slices.Collect(maps.Keys(map[string]int{}))"}},
		"./wakeup/pglisten", "TestManyKeysFewLocks"},
	{"expired row deleted without another look at its end", []edit{{"repository/postgres.go",
		"LOCK_KEY = r.want_key AND REGION = :region AND {expires} < {now}\n    LIMIT 1 FOR UPDATE SKIP LOCKED) AS due)", "LOCK_KEY = r.want_key AND REGION = :region\n    LIMIT 1) AS due)"}},
		"./repository", "TestDeleteExpiredLooksAgain/Spring_7/postgres"},
	{"expiry by the start of the transaction", []edit{{"repository/postgres.go",
		"clock:    \"(statement_timestamp() AT", "clock:    \"(now() AT"}},
		"./repository", "TestAssertInOldTransaction/postgres"},
	{"commit that does not look whether the lock is held", []edit{{"examples/aggregator/aggregator.go",
		"return fencing.AssertHeld(ctx, tx, hold)", "_, _ = hold, fencing.AssertHeld; return nil"}},
		"./examples/aggregator", "TestAWriteWithoutTheLockIsRefused/sqlite"},
	{"row of a lease that was ended still its holder's", []edit{{"repository/dialect.go",
		"SET {expires} = {end}, ATTEMPT = -ATTEMPT", "SET {expires} = {end}, ATTEMPT = ATTEMPT"}},
		"./repository", "TestDatabases/plain/sqlite"},
	{"row that has to stay deleted in the background", []edit{{"registry/giveback.go",
		"if g.failure != nil && !keep.IsZero() {", "if false {"}},
		"./registry", "TestMemory/.*/UnlockAfterFails"},
	{"job given back before its minimum", []edit{{"schedule/run.go",
		"err := r.hold.UnlockAfter(ctx, least)", "err := r.hold.UnlockAfter(ctx, 0*least)"}},
		"./schedule", "TestLocks/sqlite"},
	{"instant that runs twice", []edit{{"schedule/executor.go",
		"err = hold.UnlockAfter(ctx, e.memory)", "err = hold.Unlock(ctx)"}},
		"./schedule", "TestTicks/sqlite"},
	{"outage told as a repeated request", []edit{{"middleware/guard.go",
		"case errors.As(err, &held) && !errors.Is(err, registry.ErrUnavailable):", "case errors.As(err, &held) || errors.Is(err, registry.ErrUnavailable):"},
		{"middleware/guard.go", "RetryAfter: held.Remaining}", "RetryAfter: 0}"}},
		"./middleware", "TestOutage/postgres"},
	{"leadership given up while the callback runs", []edit{{"leader/run.go",
		"failure = <-panicked // the lease is renewed until then, unless it is lost", ""}},
		"./leader", "TestStop/sqlite"},
}
