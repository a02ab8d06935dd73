//go:build unix

package main

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// keysOf hears the keys of a terminal, which the caller makes raw: then nothing but this says that
// Ctrl-C and Ctrl-Z were typed. There are none where the terminal belongs to others.
func keysOf(in io.Reader) (*os.File, <-chan string) {
	f, is := in.(*os.File)
	if !is || !isTerminal(in) {
		return nil, nil
	}
	if owner, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP); err != nil ||
		owner != syscall.Getpgrp() {
		return nil, nil
	}
	keys := make(chan string)
	go func() { // ends with the process
		var b [64]byte
		for {
			n, err := f.Read(b[:])
			if err != nil {
				return
			}
			for _, key := range split(string(b[:n])) {
				switch key {
				case "\x03":
					_ = syscall.Kill(0, syscall.SIGINT)
				case "\x1a":
					_ = syscall.Kill(0, syscall.SIGTSTP)
				case "\x1c":
					_ = syscall.Kill(0, syscall.SIGQUIT)
				default:
					keys <- key
				}
			}
		}
	}()
	return f, keys
}
