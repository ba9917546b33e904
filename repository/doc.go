// Package repository stores locks as rows of a database table, one statement
// and one round trip per operation, on the database's own clock.
//
// [DefaultLockRepository] works on PostgreSQL, MySQL 8.0 and newer, MariaDB
// 10.5 and newer, and SQLite 3.42 and newer, through any *sql.DB or *sqlx.DB.
// [MemoryLockRepository] is the same thing without a database: the executable
// model, for tests, for examples and for programs of one process.
// Both satisfy [LockRepository], whose comment is the contract and whose test
// suite is package repositorytest.
//
// Applications rarely call a repository. They make one, hand it to
// registry.New, and take locks from the registry:
//
//	repo, err := repository.New(ctx, db, repository.WithRegion("billing"))
//	...
//	locks, err := registry.New(repo)
//
// # The table
//
// The table is Spring Integration's INT_LOCK with three nullable columns
// added: ATTEMPT (which call took the lock), HOLDER and LOCK_NAME (for people).
// Package schema has the scripts. A Java service on the same table keeps
// working; see docs/spring.md for what to watch in a mixed fleet.
//
// # Ownership
//
// A row belongs to a client id and an attempt. The client id names the process
// and is a random UUID unless the application sets one; the attempt names one
// call to take the lock and is drawn at random for it. Spring knows only the
// client id, so that two of its registries with the same id share every lock;
// here they exclude each other like any two clients.
//
// # Tokens
//
// With [WithTokens] each grant has a number above those of all earlier grants
// of the key. Package fencing refuses a write that comes with an older one, so
// that a holder which does not know that its lease is over does no damage.
package repository
