package stream

import "time"

// Revisions are a Lamport clock: a service continues from the highest revision that one of its
// sidecars holds. So a client must not be able to name just any. A service creates far fewer than
// one per microsecond. So no honest client holds a higher one than the microseconds since an
// epoch, plus clockSlack for clocks that are behind.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const clockSlack = 1 << 32

// maxPlausible is the highest revision that a service can have reached by now. It stays below
// 2^53 until the year 2285, so every JSON reader has it exactly.
func maxPlausible(now time.Time) uint64 {
	return clockSlack + uint64(max(0, now.Sub(epoch).Microseconds()))
}
