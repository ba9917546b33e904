package main

import "syscall"

// dieWithUs has the kernel kill the command when our thread ends, so that a kill -9
// of intlock leaves nothing that works without a lock.
func dieWithUs(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
