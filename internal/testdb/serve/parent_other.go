//go:build unix && !linux

package main

import "syscall"

// dieWithParent has no counterpart here: after a kill -9 of serve, its
// servers must be ended by hand.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
