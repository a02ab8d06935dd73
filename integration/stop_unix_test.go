//go:build unix

package integration_test

import "syscall"

// stop stops a child until resume is called. The child's connections stay open.
func (r *relative) stop() { r.signal(syscall.SIGSTOP) }

func (r *relative) resume() { r.signal(syscall.SIGCONT) }
