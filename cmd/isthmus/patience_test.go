package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestALongWriteIsSaidToGoOn(t *testing.T) {
	for took, want := range map[time.Duration]string{
		900 * time.Millisecond:  "",
		3500 * time.Millisecond: "2250 objects: 1s so far\n2250 objects: answered after 3.5s\n",
		7 * time.Second:         "2250 objects: 1s so far\n2250 objects: 6s so far\n2250 objects: answered after 7s\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			done := patience(&b, 2250)
			time.Sleep(took)
			done()
			if b.String() != want {
				t.Errorf("%s: got %q, want %q", took, b.String(), want)
			}
		})
	}
}
