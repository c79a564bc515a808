package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	layers "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.yaml.in/yaml/v3"
)

// artifact is what a registry gets: an image, or a chart.
type artifact struct {
	repository string // below options.to
	at         string // ":" and a tag, or "@" and its digest
	digested   partial.Describable
	write      func(name.Reference, ...remote.Option) error
}

// push writes all that is packed to the registry, if there is one, with the credentials that docker
// and podman keep. What is there already is not sent again, and a version that is there with other
// bytes stays.
func (o *options) push() error {
	if o.to == "" {
		return nil
	}
	for _, a := range o.pushes {
		ref, err := name.ParseReference(o.to + "/" + a.repository + a.at)
		if err != nil {
			return fmt.Errorf("%w; write a registry such as registry.example/isthmus", err)
		}
		if err := o.pushOne(ref, a); err != nil {
			return fmt.Errorf("push to %s: %w", ref, err)
		}
		fmt.Println("pushed", ref)
	}
	return nil
}

func (o *options) pushOne(ref name.Reference, a artifact) error {
	how := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	const advice = "are you logged in there, and allowed to push?"
	there, err := remote.Head(ref, how)
	var answer *transport.Error
	switch {
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
	case err != nil:
		return fmt.Errorf("%w; %s", err, advice)
	case o.whole:
		digest, err := a.digested.Digest()
		if err != nil {
			return err
		}
		if there.Digest != digest {
			return fmt.Errorf("this version is there with other bytes (%s, not %s), and a release never changes; raise the version", there.Digest, digest)
		}
	}
	if err := a.write(ref, how); err != nil {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return nil
}

// Media types of charts: https://helm.sh/docs/topics/registries.
const (
	chartConfig  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContent = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// chart prepares a chart for the registry as "helm push" would, but with the date of the commit, so that
// the same chart is the same bytes.
func (o *options) chart(repository string, files []entry, archive []byte) error {
	var about map[string]any
	for _, f := range files {
		if f.name == repository+"/Chart.yaml" {
			if err := yaml.Unmarshal(f.text, &about); err != nil {
				return err
			}
		}
	}
	config, err := json.Marshal(about)
	if err != nil {
		return err
	}
	layer := layers.NewLayer(archive, chartContent)
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: map[string]string{
		"org.opencontainers.image.title": repository, "org.opencontainers.image.version": o.number(), "org.opencontainers.image.created": o.time.Format(time.RFC3339),
		"org.opencontainers.image.source": project, "org.opencontainers.image.revision": o.commit,
	}}
	var parts []v1.Descriptor
	for _, l := range []v1.Layer{layers.NewLayer(config, chartConfig), layer} {
		d, err := partial.Descriptor(l)
		if err != nil {
			return err
		}
		parts = append(parts, *d)
	}
	m.Config, m.Layers = parts[0], parts[1:]
	manifest, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return o.pushPacked("charts/"+repository, ":"+strings.ReplaceAll(o.number(), "+", "_"), config, manifest, layer)
}

// pushPacked has the registry get a manifest, with its configuration and its one layer.
func (o *options) pushPacked(repository, at string, config, manifest []byte, layer v1.Layer) error {
	img, err := partial.CompressedToImage(&packed{config, manifest, layer})
	if err != nil {
		return err
	}
	o.pushes = append(o.pushes, artifact{repository, at, img, func(to name.Reference, how ...remote.Option) error { return remote.Write(to, img, how...) }})
	return nil
}

// packed is the parts of a chart or of a signature.
type packed struct {
	config, manifest []byte
	layer            v1.Layer
}

// RawConfigFile implements [partial.CompressedImageCore], as the other methods do.
func (c *packed) RawConfigFile() ([]byte, error) { return c.config, nil }

// MediaType is the manifest's.
func (c *packed) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest is the manifest.
func (c *packed) RawManifest() ([]byte, error) { return c.manifest, nil }

// LayerByDigest is the archive or the bundle; there is no other layer.
func (c *packed) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return c.layer, nil }
