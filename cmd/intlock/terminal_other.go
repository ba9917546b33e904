//go:build !linux

package main

import "os"

func isTerminal(f *os.File) bool {
	if f == nil || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func terminalSize(*os.File) (width, height int) { return 80, 24 }

// rawMode is for Linux alone: elsewhere Ctrl-C ends the screen.
func rawMode(*os.File) (restore func()) { return func() {} }

func readKeys(*os.File, func(byte)) {}

var suspends = []os.Signal{}

func suspend() {}
