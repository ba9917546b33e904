//go:build unix && !linux

package main

import "syscall"

// dieWithUs is for Linux alone.
func dieWithUs(*syscall.SysProcAttr) {}
