package main

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	layers "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	bundles "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	common "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	envelopes "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"google.golang.org/protobuf/encoding/protojson"
)

// Types of what is signed, and of how: https://slsa.dev/spec/v1.0/provenance,
// https://github.com/in-toto/attestation, https://docs.sigstore.dev/about/bundle.
const (
	bundleType     = "application/vnd.dev.sigstore.bundle.v0.3+json"
	statementType  = "https://in-toto.io/Statement/v1"
	provenanceType = "https://slsa.dev/provenance/v1"
	signatureType  = "https://sigstore.dev/cosign/sign/v1"
	buildType      = project + "/blob/main/.ci/release"
	emptyConfig    = types.MediaType("application/vnd.oci.empty.v1+json")
)

// publicKey is where the repository has the key that its releases are checked by.
const publicKey = "deploy/release.pub"

// signer signs by a key. The same text gets the same signature (RFC 6979), so that a release is made
// again byte by byte.
type signer struct {
	key    *ecdsa.PrivateKey
	hint   string
	public []byte // PEM
}

// newSigner reads a key in PEM, which "cosign generate-key-pair" has encrypted or "openssl genpkey"
// has not. The repository has to have the public one.
func newSigner(file, root string) (*signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("-key %s is no PEM; make one by: cosign generate-key-pair", file)
	}
	der := block.Bytes
	if block.Type == "ENCRYPTED SIGSTORE PRIVATE KEY" || block.Type == "ENCRYPTED COSIGN PRIVATE KEY" {
		if der, err = encrypted.Decrypt(der, []byte(os.Getenv("COSIGN_PASSWORD"))); err != nil {
			return nil, fmt.Errorf("-key %s: %w; COSIGN_PASSWORD has to have its password", file, err)
		}
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err == nil && !ok {
		err = fmt.Errorf("it is a %T", parsed)
	}
	if err != nil {
		return nil, fmt.Errorf("-key %s is no PKCS #8 key of ECDSA (%w); make one by: cosign generate-key-pair", file, err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(public)
	s := &signer{key, base64.StdEncoding.EncodeToString(sum[:]), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})}
	known, err := os.ReadFile(filepath.Join(root, publicKey))
	if err != nil || !bytes.Equal(bytes.TrimSpace(known), bytes.TrimSpace(s.public)) {
		return nil, fmt.Errorf("%s, which people check releases by, is not the public key of -key %s; commit it there first:\n%s", publicKey, file, s.public)
	}
	return s, nil
}

func (s *signer) sign(text []byte) ([]byte, error) {
	sum := sha256.Sum256(text)
	return s.key.Sign(nil, sum[:], crypto.SHA256)
}

// bundle is what Sigstore's tools take: content beside a hint to the key.
func (s *signer) bundle(b *bundles.Bundle) ([]byte, error) {
	b.MediaType = bundleType
	b.VerificationMaterial = &bundles.VerificationMaterial{Content: &bundles.VerificationMaterial_PublicKey{PublicKey: &common.PublicKeyIdentifier{Hint: s.hint}}}
	text, err := protojson.Marshal(b)
	if err != nil {
		return nil, err
	}
	var same bytes.Buffer // protojson has spaces in places of its choice
	if err := json.Compact(&same, text); err != nil {
		return nil, err
	}
	return same.Bytes(), nil
}

// file signs a file.
func (s *signer) file(text []byte) (bundle, bare []byte, err error) {
	if bare, err = s.sign(text); err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(text)
	bundle, err = s.bundle(&bundles.Bundle{Content: &bundles.Bundle_MessageSignature{MessageSignature: &common.MessageSignature{
		MessageDigest: &common.HashOutput{Algorithm: common.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: bare,
	}}})
	return bundle, bare, err
}

// subject is what a statement is about.
type subject struct {
	Name   string            `json:"name,omitempty"`
	Digest map[string]string `json:"digest"`
}

// statement signs a statement of in-toto.
func (s *signer) statement(predicate string, content any, about ...subject) ([]byte, error) {
	text, err := json.Marshal(map[string]any{"_type": statementType, "subject": about, "predicateType": predicate, "predicate": content})
	if err != nil {
		return nil, err
	}
	const kind = "application/vnd.in-toto+json"
	signature, err := s.sign(dsse.PAE(kind, text))
	if err != nil {
		return nil, err
	}
	return s.bundle(&bundles.Bundle{Content: &bundles.Bundle_DsseEnvelope{DsseEnvelope: &envelopes.Envelope{
		Payload: text, PayloadType: kind, Signatures: []*envelopes.Signature{{Sig: signature}},
	}}})
}

// origin says what is built from what, and how (SLSA provenance 1.0). It has nothing of this machine.
func (o *options) origin() any {
	return map[string]any{
		"buildDefinition": map[string]any{
			"buildType":          buildType,
			"externalParameters": map[string]string{"source": project, "version": o.version},
			"resolvedDependencies": []any{map[string]any{
				"uri": "git+" + project + "@refs/tags/" + o.version, "digest": map[string]string{"gitCommit": o.commit},
			}},
		},
		"runDetails": map[string]any{"builder": map[string]string{"id": buildType}},
	}
}

// provenance publishes where all files come from that were published before, and signs the images and charts
// for the registry.
func (o *options) provenance() error {
	if o.signer == nil {
		return nil
	}
	files, err := filesIn(filepath.Join(o.out, "release"), "")
	if err != nil {
		return err
	}
	var all []subject
	for _, f := range files {
		sum := sha256.Sum256(f.text)
		all = append(all, subject{f.name, map[string]string{"sha256": hex.EncodeToString(sum[:])}})
	}
	text, err := o.signer.statement(provenanceType, o.origin(), all...)
	if err != nil {
		return err
	}
	if err := o.publish("provenance.sigstore.json", text); err != nil {
		return err
	}
	for _, a := range slices.Clone(o.pushes) {
		digest, err := a.digested.Digest()
		if err != nil {
			return err
		}
		about := subject{Digest: map[string]string{digest.Algorithm: digest.Hex}}
		for kind, content := range map[string]any{signatureType: struct{}{}, provenanceType: o.origin()} {
			text, err := o.signer.statement(kind, content, about)
			if err == nil {
				err = o.attach(a, kind, text)
			}
			if err != nil {
				return fmt.Errorf("sign %s: %w", a.repository, err)
			}
		}
	}
	return nil
}

// attach prepares a bundle that refers to what goes to the registry, as cosign 3 looks for it.
func (o *options) attach(to artifact, kind string, bundle []byte) error {
	about, err := partial.Descriptor(to.digested)
	if err != nil {
		return err
	}
	config, layer := layers.NewLayer([]byte("{}"), emptyConfig), layers.NewLayer(bundle, bundleType)
	m := struct {
		v1.Manifest
		ArtifactType string `json:"artifactType"`
	}{v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: map[string]string{
		"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": kind,
	}}, bundleType}
	m.Subject = &v1.Descriptor{MediaType: about.MediaType, Size: about.Size, Digest: about.Digest}
	for _, l := range []v1.Layer{config, layer} {
		d, err := partial.Descriptor(l)
		if err != nil {
			return err
		}
		m.Layers = append(m.Layers, *d)
	}
	m.Config, m.Layers = m.Layers[0], m.Layers[1:]
	manifest, err := json.Marshal(m)
	if err != nil {
		return err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(manifest))
	if err != nil {
		return err
	}
	return o.pushPacked(to.repository, "@"+digest.String(), []byte("{}"), manifest, layer)
}

// signatures publishes those of the checksums, as Sigstore's tools and as openssl take them.
func (o *options) signatures() error {
	if o.signer == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(o.out, "release", sums))
	if err != nil {
		return err
	}
	bundle, bare, err := o.signer.file(text)
	if err != nil {
		return err
	}
	return cmp.Or(o.publish(sums+".sigstore.json", bundle), o.publish(sums+".sig", bare), o.publish(filepath.Base(publicKey), o.signer.public))
}
