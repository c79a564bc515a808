package component

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dapr/dapr/cmd/daprd/options"
)

// daprd's own parser reads the default.
func TestDefaultForBlockShutdown(t *testing.T) {
	ptr := func(d time.Duration) *time.Duration { return &d }
	for args, want := range map[string]*time.Duration{
		"--app-id orders --app-port 8080":                                       ptr(BlockShutdown),
		"-app-id orders -app-port 8080":                                         ptr(BlockShutdown),
		"--app-port=8080 --enable-mtls --config a.yaml":                         ptr(BlockShutdown),
		"--app-port 8080 --dapr-block-shutdown-duration 10s":                    ptr(10 * time.Second),
		"-app-port 8080 -dapr-block-shutdown-duration=0s":                       ptr(0),
		"--dapr-block-shutdown-duration=10s":                                    ptr(10 * time.Second),
		"--app-id checkout":                                                     nil,
		"--app-id checkout --app-port 0":                                        nil,
		"--enable-app-health-check --app-port 8080 --app-channel-address ::1":   ptr(BlockShutdown),
		"--log-level debug --metrics-port 9 --app-port 8080 --app-protocol h2c": ptr(BlockShutdown),
	} {
		t.Run(args, func(t *testing.T) {
			opts, err := options.New(Arguments(append([]string{"daprd"}, strings.Fields(args)...))[1:])
			if err != nil {
				t.Fatal(err)
			}
			got := opts.DaprBlockShutdownDuration
			switch {
			case (got == nil) != (want == nil):
				t.Errorf("daprd blocks its shutdown: %v, want %v", got != nil, want != nil)
			case got != nil && *got != *want:
				t.Errorf("daprd blocks its shutdown for %v, want %v", *got, *want)
			}
		})
	}
}

func TestArgumentsThatDaprdRefusesAreLeftAlone(t *testing.T) {
	for _, args := range [][]string{nil, {"daprd"}, {"daprd", "--app-port"}, {"daprd", "---"}} {
		if got := Arguments(args); !slices.Equal(got, args) {
			t.Errorf("Arguments(%q) = %q, want them unchanged", args, got)
		}
	}
}
