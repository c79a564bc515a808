package stream

import "time"

// Revisions are a Lamport clock: a service numbers on from the highest revision that one of
// its sidecars holds. So a client must not be able to name any: a service gives out far fewer
// than one each microsecond, so no honest client holds a higher one than that allows since
// an epoch. spare is for clocks that are behind.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const clockSlack = 1 << 32

// plausible is the highest revision that a service can have given out by now. It stays below
// 2^53 until the year 2285, so that every reader of JSON has it exactly.
func maxPlausible(now time.Time) uint64 {
	return clockSlack + uint64(max(0, now.Sub(epoch).Microseconds()))
}
