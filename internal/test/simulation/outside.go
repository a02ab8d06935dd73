package simulation

import (
	"time"
)

// Outside schedules events of the world that belong to no process.
type Outside struct{ w *world }

// At runs do at an instant.
func (o *Outside) At(at time.Duration, do func()) { o.w.After(at, do) }
