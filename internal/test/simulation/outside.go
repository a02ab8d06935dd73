package simulation

import (
	"time"
)

// Outside is what happens in the world beside the processes.
type Outside struct{ w *world }

// At lets something happen at an instant.
func (o *Outside) At(at time.Duration, do func()) { o.w.After(at, do) }
