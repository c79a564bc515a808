package component

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/dapr/dapr/pkg/buildinfo"
)

// release is set by the linker: a release, or the commit that this is built from.
var release string

// module is that of this package, which is part of the daprd of others, too.
const module = "github.com/isthmus-mesh/isthmus/components/daprd"

// version is that of the component. In our own daprd it is a commit where nothing else is known.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := versionIn(info, module); v != "" || info.Main.Path != module {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 7)]
		}
	}
	return ""
}

// versionIn is the version of a module in a program; empty: it is of no release.
func versionIn(info *debug.BuildInfo, path string) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Replace != nil {
			m = &debug.Module{Path: m.Path, Version: m.Replace.Version}
		}
		if m.Path == path && strings.HasPrefix(m.Version, "v") && !strings.HasPrefix(m.Version, "v0.0.0") {
			return m.Version
		}
	}
	return ""
}

// runtimeVersion is that of the sidecar which the component is part of. Dapr's own builds tell the
// linker.
func runtimeVersion() string {
	version := buildinfo.Version()
	if info, ok := debug.ReadBuildInfo(); ok && version == "edge" {
		version = cmp.Or(strings.TrimPrefix(versionIn(info, "github.com/dapr/dapr"), "v"), version)
	}
	return "daprd " + version
}
