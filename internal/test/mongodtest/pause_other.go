//go:build !unix

package mongodtest

import "errors"

// Pause returns errors.ErrUnsupported, because this system cannot stop a process.
func (d *Deployment) Pause(int) error { return errors.ErrUnsupported }

// Continue returns errors.ErrUnsupported.
func (d *Deployment) Continue(int) error { return errors.ErrUnsupported }
