package main

import (
	"io"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/show"
)

// When a write is said to go on: after a second, and then now and then.
const (
	patientAfter = time.Second
	patientEvery = 5 * time.Second
)

// patience says that a write of n objects goes on, once it takes longer than [patientAfter], and
// at the end how long it took. The function that it returns ends it.
func patience(w io.Writer, n int) (done func()) {
	begun, ended, end := time.Now(), make(chan bool), make(chan struct{})
	go func() {
		said := false
		timer := time.NewTimer(patientAfter)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				said = true
				show.Say(w, "%s: %s so far\n", show.Count(n, "object"), time.Since(begun).Round(time.Second))
				timer.Reset(patientEvery)
			case <-end:
				ended <- said
				return
			}
		}
	}()
	return func() {
		close(end)
		if <-ended {
			show.Say(w, "%s: answered after %s\n", show.Count(n, "object"), time.Since(begun).Round(100*time.Millisecond))
		}
	}
}
