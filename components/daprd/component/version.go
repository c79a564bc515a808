package component

import (
	"runtime/debug"
	"strings"

	"github.com/dapr/dapr/pkg/buildinfo"
)

// release is set by the linker: a release, or the commit that this is built from.
var release string

// version is that of the component. It is a commit where nothing else is known.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" && !strings.HasPrefix(v, "v0.0.0-") {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 7)]
		}
	}
	return ""
}

// runtimeVersion is that of the sidecar which the component is part of.
func runtimeVersion() string { return "daprd " + buildinfo.Version() }
