package stream_test

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// TestWhoObserves holds what is said of an app whose callers may be unseen.
func TestWhoObserves(t *testing.T) {
	for _, test := range []struct {
		of   stream.Observers // that don't say, that have the guard
		want string
	}{
		{stream.Observers{0, 2}, ""},
		{stream.Observers{1, 1}, "1 of 2 sidecars don't say whether the guard is loaded"},
		{stream.Observers{}, "no sidecar of it is connected here"},
	} {
		if got := test.of.Blind(); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%v: %q, want %q", test.of, got, test.want)
		}
	}
}
