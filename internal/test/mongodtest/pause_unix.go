//go:build unix

package mongodtest

import "syscall"

// Pause stops a member. Its connections stay open, but get no replies.
func (d *Deployment) Pause(node int) error { return d.nodes[node].signal(syscall.SIGSTOP) }

// Continue continues a member after Pause.
func (d *Deployment) Continue(node int) error { return d.nodes[node].signal(syscall.SIGCONT) }
