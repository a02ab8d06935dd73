//go:build unix

package mongodtest

import "syscall"

// Pause stops a member with SIGSTOP: its connections stay open and nothing is answered.
func (d *Deployment) Pause(node int) error { return d.nodes[node].signal(syscall.SIGSTOP) }

// Continue lets a paused member go on.
func (d *Deployment) Continue(node int) error { return d.nodes[node].signal(syscall.SIGCONT) }
