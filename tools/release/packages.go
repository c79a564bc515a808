package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const unit = "deploy/systemd/isthmus.service"

// afterInstall has systemd take the unit. A service that runs goes on with the new program.
const afterInstall = `#!/bin/sh
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	systemctl try-restart isthmus.service || :
fi
`

// packages publishes isthmus for Linux as systems install it.
func (o *options) packages() error {
	for _, b := range o.binaries {
		if b.image != "isthmus" || b.platform.OS != "linux" {
			continue
		}
		for kind, packager := range map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
			if err := o.packageOf(b, kind, packager); err != nil {
				return fmt.Errorf("%s for %s: %w", kind, b.platform, err)
			}
		}
	}
	return nil
}

func (o *options) packageOf(b binary, kind string, packager nfpm.Packager) error {
	dir, err := os.MkdirTemp("", "isthmus-package")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	text, err := os.ReadFile(filepath.Join(o.root, unit))
	if err != nil {
		return err
	}
	service, script := filepath.Join(dir, "isthmus.service"), filepath.Join(dir, "after")
	for path, text := range map[string][]byte{
		service: bytes.ReplaceAll(text, []byte("/usr/local/bin"), []byte("/usr/bin")), script: []byte(afterInstall),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	file := func(from, to string, mode os.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: o.time}}
	}
	about := nfpm.WithDefaults(&nfpm.Info{
		Name: "isthmus", Arch: b.platform.Architecture, Platform: "linux", Version: o.number(), MTime: o.time,
		Section: "net", Priority: "optional", Maintainer: "Isthmus <" + project + ">", Vendor: "Isthmus",
		Description: "Resolver service and command line of Isthmus\nApps call each other by Dapr's app-ids, also in other clusters.",
		Homepage:    project, License: "Apache-2.0", DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: files.Contents{
				file(b.file, "/usr/bin/isthmus", 0o755), file(service, "/usr/lib/systemd/system/isthmus.service", 0o644),
				file(filepath.Join(o.root, "LICENSE"), "/usr/share/doc/isthmus/copyright", 0o644),
				{Source: "isthmus", Destination: "/usr/bin/kubectl-isthmus", Type: files.TypeSymlink},
				{Destination: "/etc/isthmus", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: o.time}},
			},
			Scripts: nfpm.Scripts{PostInstall: script},
			RPM:     nfpm.RPM{BuildHost: "isthmus", Summary: "Resolver service and command line of Isthmus"},
		},
	})
	if err := nfpm.PrepareForPackager(about, kind); err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := packager.Package(about, &packed); err != nil {
		return err
	}
	return o.publish(fmt.Sprintf("isthmus-%s-linux-%s.%s", o.number(), b.platform.Architecture, kind), packed.Bytes())
}

//go:embed krew.yaml.tmpl
var krew string

//go:embed isthmus.rb.tmpl
var formula string

// archive is what the manifests of Krew and Homebrew lead to.
type archive struct{ File, OS, Arch, URL, SHA256 string }

// manifests publishes those by which Krew and Homebrew find the archives.
func (o *options) manifests() error {
	paths, err := filepath.Glob(filepath.Join(o.out, "release", "isthmus-*.tar.gz"))
	if err != nil {
		return err
	}
	slices.Sort(paths)
	var all []archive
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file := filepath.Base(path)
		parts := strings.Split(strings.TrimSuffix(file, ".tar.gz"), "-")
		all = append(all, archive{file, parts[len(parts)-2], parts[len(parts)-1], project + "/releases/download/" + o.version + "/" + file, fmt.Sprintf("%x", sha256.Sum256(text))})
	}
	for name, text := range map[string]string{"isthmus.krew.yaml": krew, "isthmus.rb": formula} {
		parsed, err := template.New(name).Parse(text)
		if err != nil {
			return err
		}
		var made bytes.Buffer
		if err := parsed.Execute(&made, map[string]any{"Version": o.version, "Number": o.number(), "Project": project, "Archives": all}); err != nil {
			return err
		}
		if err := o.publish(name, made.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
