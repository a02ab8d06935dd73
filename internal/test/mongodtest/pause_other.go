//go:build !unix

package mongodtest

import "errors"

// Pause returns errors.ErrUnsupported: this system cannot stop and resume a process.
func (d *Deployment) Pause(int) error { return errors.ErrUnsupported }

// Continue returns errors.ErrUnsupported, like Pause.
func (d *Deployment) Continue(int) error { return errors.ErrUnsupported }
