//go:build !unix

package main

import "os"

// canStop: there are no signals for that here, so -stop is refused.
const canStop = false

func (p *process) stop() {}

func (p *process) resume() {}

func whenContinued() (continued <-chan os.Signal, stop func()) { return nil, func() {} }
