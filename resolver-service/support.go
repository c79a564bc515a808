package resolverservice

import (
	"bytes"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
)

// supportFile is a file of a support bundle that the service makes itself. None has a secret.
type supportFile struct {
	name string
	make func() ([]byte, error)
}

func (s *Service) supportFiles() []supportFile {
	return []supportFile{
		{"configuration.json", func() ([]byte, error) { return indented(strict.Values(s.cfg, settings.Hide)) }},
		{"metrics.txt", s.metricsText},
		{"runtime.json", s.runtimeText},
	}
}

// supportPart is how much of a file a message has.
const supportPart = 1 << 20

// Support sends the files, one after the other.
func (s statusServer) Support(_ *v1alpha1.SupportRequest, to grpc.ServerStreamingServer[v1alpha1.SupportResponse]) error {
	for _, f := range s.files {
		text, err := f.make()
		if err != nil {
			return status.Errorf(codes.Internal, "%s: %v", f.name, err)
		}
		for part := range slices.Chunk(text, supportPart) {
			if err := to.Send(&v1alpha1.SupportResponse{Name: f.name, Text: part}); err != nil {
				return err
			}
		}
	}
	return nil
}

// metricsText is what /metrics shows, also where listen.admin is off.
func (s *Service) metricsText() ([]byte, error) {
	all, err := s.registry.Gather()
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

// runtimeText is what the process takes.
func (s *Service) runtimeText() ([]byte, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	modules := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
	}
	return indented(map[string]any{
		"version": s.cfg.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		"started": s.started.UTC(), "goroutines": runtime.NumGoroutine(), "processors": runtime.GOMAXPROCS(0),
		"openFilesLimit": process.OpenFiles(), "heapBytes": memory.HeapAlloc, "memoryBytes": memory.Sys, "memoryLimitBytes": debug.SetMemoryLimit(-1),
		"modules": modules,
	})
}

func indented(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}
