package answers

import (
	"bytes"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// SupportFile is a file of a support bundle that the service makes itself. None has a secret.
type SupportFile struct {
	Name string
	Make func() ([]byte, error)
}

// Process is the process that a support bundle tells of.
type Process struct {
	Version   string // of the program
	Started   time.Time
	OpenFiles int // that it may have
}

// SupportFiles are those of a process with a configuration and metrics.
func SupportFiles(configuration any, metrics prometheus.Gatherer, p Process) []SupportFile {
	return []SupportFile{
		{"configuration.json", func() ([]byte, error) { return indented(strict.Values(configuration, settings.Hide)) }},
		{"metrics.txt", func() ([]byte, error) { return metricsText(metrics) }},
		{"runtime.json", func() ([]byte, error) { return p.text() }},
	}
}

// supportPart is how much of a file a message has.
const supportPart = 1 << 20

// Support sends the files, one after the other.
func (s Status) Support(_ *v1alpha1.SupportRequest, to grpc.ServerStreamingServer[v1alpha1.SupportResponse]) error {
	for _, f := range s.Files {
		text, err := f.Make()
		if err != nil {
			return status.Errorf(codes.Internal, "%s: %v", f.Name, err)
		}
		for part := range slices.Chunk(text, supportPart) {
			if err := to.Send(&v1alpha1.SupportResponse{Name: f.Name, Text: part}); err != nil {
				return err
			}
		}
	}
	return nil
}

// metricsText is what /metrics shows, also where listen.admin is off.
func metricsText(from prometheus.Gatherer) ([]byte, error) {
	all, err := from.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, family := range all {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// text is what the process takes.
func (p Process) text() ([]byte, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	modules := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
	}
	return indented(map[string]any{
		"version": p.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		"started": p.Started.UTC(), "goroutines": runtime.NumGoroutine(), "processors": runtime.GOMAXPROCS(0),
		"openFilesLimit": p.OpenFiles, "heapBytes": memory.HeapAlloc, "memoryBytes": memory.Sys, "memoryLimitBytes": debug.SetMemoryLimit(-1),
		"modules": modules,
	})
}

func indented(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}
