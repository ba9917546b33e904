// Package check judges histories. Worker processes lock, believe, write and unlock
// under faults, and record what they called, what came back, and until when they
// believed in a lock. From the records, and from what a trigger has noted in the
// database, it is checked
//
//   - that no two believed in one lock at the same time, and that tokens rose (Overlaps);
//   - that there is an order of all operations on a key in which a lock with a lease
//     answers as it did (Linearizable, by porcupine);
//   - that the database forgot no grant that it had confirmed (Forgotten);
//   - that no write of an earlier holder came after one of a later holder, where the
//     fencing guard was asked (Stale).
//
// It is a module of its own with its own commands, make histories and make check-long,
// so that porcupine reaches nobody's build.
package check
