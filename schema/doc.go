// Package schema creates, checks and drops the lock table and what fencing
// needs beside it.
//
// Lock calls never create tables: an application that may lock need not be
// allowed to change the schema. Somebody creates the table beforehand, once,
// in one of three ways:
//
//   - [Apply], from a program that has the right to create tables. It may be
//     called by many processes at the same time and any number of times.
//   - The file <vendor>.sql of this directory, run by a DBA as it is. Its names
//     begin with Spring's default, INT_LOCK.
//   - [Script], which returns the same text for any prefix, for Flyway,
//     Liquibase and other migration tools. [DropScript] is its counterpart.
//
// [Check] tells whether what exists fits, and changes nothing. What does not
// fit is a [*MismatchError]: it lists every finding with what is there, what
// should be there, and the SQL that mends it. Nothing in this package alters a
// table or sequence that exists; the statements are for you to run.
//
// # The lock table
//
// It is the INT_LOCK of Spring Integration 7 with three columns added, ATTEMPT,
// HOLDER and LOCK_NAME. They may be NULL, so a Java service whose INSERT does
// not name them can use the same table. A table made by Spring's own script
// fits as soon as the three columns are added; Check prints the statements.
// More columns may be present if an INSERT that does not name them succeeds.
//
// The layout of Spring Integration 6.5 and older has no EXPIRED_AFTER. Check
// refuses it and prints the way to the newer one; a table that such Java
// services still use must stay as it is, see repository.WithSpring6Layout. Run
// the script then: it leaves the lock table alone and creates the rest.
//
// # The token source and the fence table
//
// INT_LOCK_TOKEN is where fencing tokens come from: a sequence on Postgres and
// MariaDB, a table on MySQL and SQLite. A lock call draws from it only when it
// is asked for a token. Check refuses what could let a later grant have a lower
// token, such as a sequence that caches numbers.
//
// INT_LOCK_FENCE has a row per resource, with the highest token that has
// written to it.
//
// Java services need neither, and a database that only has the lock table of
// an older release gets both from Apply. Do not empty or drop one of the two
// alone: tokens would start over below the marks, or the marks be forgotten.
//
// # The database
//
// The functions take what *sql.DB and *sqlx.DB have in common, whatever the
// driver. The server is asked what it is. At most one connection is in use at
// a time. A table name without a schema part means what it means to the
// server: the first match on the search_path of Postgres, the current database
// of MySQL and MariaDB, and the main database of SQLite if no temporary one
// hides it.
package schema
