package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps by the system call: Go's own timers are as coarse as a millisecond in a
// program that waits for nothing else.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it early, which does no harm
}
