package main

import (
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// kind is one of the images.
type kind struct {
	name       string
	path       string   // of the binary in the image
	entrypoint []string // none: who runs it says what to run
	about      string
	dir        string // of the user, besides /tmp; none where empty
}

// kinds are all images. Dapr's injector passes "/daprd" as the first argument to a container without
// a command, so that image must have no entrypoint.
var kinds = []kind{
	{name: "isthmus", path: "isthmus", entrypoint: []string{"/isthmus"}, about: "Isthmus: the resolver service and its command line", dir: "var/lib/isthmus/"},
	{name: "daprd-isthmus", path: "daprd", about: "Dapr's sidecar with Isthmus"},
}

const (
	home    = "ghcr.io/isthmus-mesh" // as the charts have it
	nobody  = 65532                  // who runs in an image; runAsNonRoot asks for a number
	project = "https://github.com/isthmus-mesh/isthmus"
)

// images writes a layout and an archive of each image that has a binary.
func (o *options) images() error {
	for _, k := range kinds {
		index, err := o.index(k)
		if err != nil {
			return fmt.Errorf("image %s: %w", k.name, err)
		}
		if index == nil {
			continue
		}
		dir := filepath.Join(o.out, "images", k.name)
		if err := o.layout(dir, k, index); err != nil {
			return fmt.Errorf("image %s: %w", k.name, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		fmt.Printf("%s/%s:%s@%s\n", dir, k.name, o.tag(), digest)
		o.pushes = append(o.pushes, artifact{k.name, ":" + o.tag(), index, func(to name.Reference, how ...remote.Option) error { return remote.WriteIndex(to, index, how...) }})
	}
	return nil
}

// index is the image of all platforms; nil without a binary.
func (o *options) index(k kind) (index v1.ImageIndex, err error) {
	for _, b := range o.binaries {
		if b.image != k.name || b.platform.OS != "linux" {
			continue
		}
		if index == nil {
			index = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		}
		img, err := o.image(k, b)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &b.platform}})
	}
	if index != nil {
		index = mutate.Annotations(index, o.labels(k)).(v1.ImageIndex)
	}
	return index, nil
}

// labels are those that registries show: the OCI image specification, annotations.md.
func (o *options) labels(k kind) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title": k.name, "org.opencontainers.image.description": k.about,
		"org.opencontainers.image.url": project, "org.opencontainers.image.source": project,
		"org.opencontainers.image.version": o.version, "org.opencontainers.image.revision": o.commit,
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.created": o.time.Format(time.RFC3339),
	}
}

// image is that of one platform: a layer that seldom changes, and one with the binary.
func (o *options) image(k kind, b binary) (v1.Image, error) {
	text, err := os.ReadFile(b.file)
	if err != nil {
		return nil, err
	}
	if err := static(text, b.platform); err != nil {
		return nil, fmt.Errorf("%s: %w", b.file, err)
	}
	roots, err := publicRoots()
	if err != nil {
		return nil, err
	}
	below := []entry{
		{name: "etc/"}, {name: "etc/ssl/"}, {name: "etc/ssl/certs/"}, {name: "etc/ssl/certs/ca-certificates.crt", text: roots},
		{name: "etc/passwd", text: fmt.Appendf(nil, "root:x:0:0:root:/:/none\nnonroot:x:%d:%[1]d:nonroot:/tmp:/none\n", nobody)},
		{name: "etc/group", text: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", nobody)},
		{name: "tmp/", mode: 0o1777},
	}
	if k.dir != "" {
		below = append(below, entry{name: "var/"}, entry{name: "var/lib/"}, entry{name: k.dir, mode: 0o700, owner: nobody})
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range [][]entry{below, {{name: k.path, mode: 0o755, text: text}}} {
		layer, err := o.layer(files)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: o.time}, CreatedBy: "isthmus tools/release"}}); err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture, config.Variant = v1.Time{Time: o.time}, b.platform.OS, b.platform.Architecture, b.platform.Variant
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%[1]d", nobody), WorkingDir: "/", Entrypoint: k.entrypoint, Labels: o.labels(k), Env: []string{"PATH=/"},
	}
	return mutate.ConfigFile(img, config)
}

func (o *options) layer(files []entry) (v1.Layer, error) {
	text, err := o.tar(files)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }, tarball.WithMediaType(types.OCILayer))
}

// machines are architectures as Go and as ELF call them.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// static checks that a binary runs in an image that has nothing else.
func static(text []byte, p v1.Platform) error {
	file, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("no binary of Linux: %w", err)
	}
	if want := machines[p.Architecture]; file.Machine != want {
		return fmt.Errorf("is for %s, not for %s", file.Machine, p)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return fmt.Errorf("needs libraries; build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// publicRoots are Mozilla's roots in PEM, but for those that count for some certificates only, which PEM can't
// say.
func publicRoots() ([]byte, error) {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if _, err := x509.ParseCertificate(root.Certificate); err != nil {
			return nil, err
		}
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// layout writes an image as a layout of its own, in place of what was there, and as an archive that
// "ctr images import", "docker load", "podman load" and "skopeo copy" take.
func (o *options) layout(dir string, k kind, index v1.ImageIndex) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{
		"org.opencontainers.image.ref.name": o.tag(), "io.containerd.image.name": fmt.Sprintf("%s/%s:%s", home, k.name, o.tag()),
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, err := filesIn(dir, "")
	if err != nil {
		return err
	}
	text, err := o.tar(files)
	if err != nil {
		return err
	}
	return os.WriteFile(dir+".tar", text, 0o644)
}
