//go:build !unix

package mongodtest

import "errors"

// Pause is refused: no process can be stopped and resumed here.
func (d *Deployment) Pause(int) error { return errors.ErrUnsupported }

// Continue is refused, see Pause.
func (d *Deployment) Continue(int) error { return errors.ErrUnsupported }
