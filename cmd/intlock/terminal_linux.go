package main

import (
	"os"
	"syscall"
	"unsafe"
)

// isTerminal reports whether somebody sits in front of f.
func isTerminal(f *os.File) bool {
	var t syscall.Termios
	return f != nil && ioctl(f, syscall.TCGETS, unsafe.Pointer(&t)) == nil && os.Getenv("TERM") != "dumb"
}

func ioctl(f *os.File, what uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), what, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// terminalSize is in characters.
func terminalSize(f *os.File) (width, height int) {
	var size struct{ rows, columns, x, y uint16 }
	if ioctl(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) != nil || size.rows == 0 || size.columns == 0 {
		return 80, 24
	}
	return int(size.columns), int(size.rows)
}

// suspends are the signals by which a shell takes its terminal back.
var suspends = []os.Signal{syscall.SIGTSTP}

// suspend stops this program until the shell lets it go on.
func suspend() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// rawMode has keys arrive as they are pressed, and not show. Ctrl-C stays a signal.
func rawMode(f *os.File) (restore func()) {
	var before syscall.Termios
	if ioctl(f, syscall.TCGETS, unsafe.Pointer(&before)) != nil {
		return func() {}
	}
	raw := before
	raw.Lflag &^= syscall.ICANON | syscall.ECHO
	ioctl(f, syscall.TCSETS, unsafe.Pointer(&raw))
	return func() { ioctl(f, syscall.TCSETS, unsafe.Pointer(&before)) }
}

// readKeys tells what is pressed.
func readKeys(f *os.File, pressed func(byte)) {
	var b [1]byte
	for {
		if n, err := f.Read(b[:]); n != 1 || err != nil {
			return
		}
		pressed(b[0])
	}
}
