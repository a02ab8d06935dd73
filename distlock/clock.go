package distlock

import "mongodlm/internal/clock"

// Clock is where a Manager takes its time from. The default is the machine's; a test or a
// simulation may bring another. Safe for concurrent use.
type Clock = clock.Clock

// Timer is a timer of a Clock.
type Timer = clock.Timer

// Reading is one instant by the wall clock and by the monotonic clock of a process.
type Reading = clock.Reading
