package main

import "syscall"

// dieWithParent ends a server even if we are killed outright.
func dieWithParent(attr *syscall.SysProcAttr, end syscall.Signal) { attr.Pdeathsig = end }
