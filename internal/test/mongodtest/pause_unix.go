//go:build unix

package mongodtest

import "syscall"

// Pause stops a member with SIGSTOP. Its connections stay open but get no replies.
func (d *Deployment) Pause(node int) error { return d.nodes[node].signal(syscall.SIGSTOP) }

// Continue resumes a paused member.
func (d *Deployment) Continue(node int) error { return d.nodes[node].signal(syscall.SIGCONT) }
