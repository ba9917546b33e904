// Package interop runs the real Java libraries, Spring Integration's JdbcLockRegistry
// and ShedLock, and this one on the same rows at the same time. It is a module of its
// own with its own command, make interop: it needs a JDK and Maven.
package interop
