// Package plugin gives locks the shapes that other libraries ask for, without
// importing any of them. docs/plugins.md shows each in use; a module of its own in
// this repository holds them to the real libraries.
//
//   - a sync.Locker (go-quartz and many others): registry.JdbcLock is one;
//   - Goose: lock.Locker and lock.SessionLocker of pressly/goose;
//   - CertMagic: Locker, TryLocker and LockLeaseRenewer of caddyserver/certmagic;
//   - Elector: gocron.Elector of go-co-op/gocron; module schedule/gocronlock has its
//     Locker;
//   - Actor: an actor of oklog/run;
//   - Hooks: OnStart and OnStop of uber-go/fx; the registry's own Close is an OnStop.
package plugin
