package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	bundles "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// signing makes a key, which a repository knows.
func signing(t *testing.T, root string) (key string, public *ecdsa.PublicKey) {
	t.Helper()
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := x509.MarshalPKIXPublicKey(made.Public())
	if err != nil {
		t.Fatal(err)
	}
	key = filepath.Join(t.TempDir(), "key.pem")
	for path, block := range map[string]*pem.Block{key: {Type: "PRIVATE KEY", Bytes: private}, filepath.Join(root, publicKey): {Type: "PUBLIC KEY", Bytes: shown}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key, &made.PublicKey
}

// checkSigned checks the signatures of a release, as the formats say.
func checkSigned(t *testing.T, dir string, public *ecdsa.PublicKey) {
	t.Helper()
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := func(text, signature []byte) bool {
		sum := sha256.Sum256(text)
		return ecdsa.VerifyASN1(public, sum[:], signature)
	}
	var b bundles.Bundle
	if err := protojson.Unmarshal(read(sums+".sigstore.json"), &b); err != nil || !good(read(sums), b.GetMessageSignature().GetSignature()) {
		t.Errorf("the signature of the checksums in the bundle: %v, %v", err, &b)
	}
	if !good(read(sums), read(sums+".sig")) {
		t.Error("the bare signature of the checksums is another's")
	}
	if err := protojson.Unmarshal(read("provenance.sigstore.json"), &b); err != nil {
		t.Fatal(err)
	}
	e := b.GetDsseEnvelope()
	if !good(dsse.PAE(e.GetPayloadType(), e.GetPayload()), e.GetSignatures()[0].GetSig()) {
		t.Errorf("the signature of the provenance is another's: %v", e)
	}
	var says struct{ Subject []subject }
	if err := json.Unmarshal(e.GetPayload(), &says); err != nil || len(says.Subject) < 5 {
		t.Errorf("the provenance says %s, %v", e.GetPayload(), err)
	}
}

func TestAKeyThatTheRepositoryDoesNotKnowIsRefused(t *testing.T) {
	root := place(t, changes)
	key, _ := signing(t, root)
	signing(t, root) // another's public key
	rsa := filepath.Join(t.TempDir(), "rsa.pem")
	if err := os.WriteFile(rsa, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(t.TempDir(), "locked.pem")
	if err := os.WriteFile(locked, []byte("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\ne30=\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string]string{
		"which people check releases by, is not the public key of": key, "is no PEM; make one by: cosign generate-key-pair": filepath.Join(root, "LICENSE"),
		"is no PKCS #8 key of ECDSA": rsa, "COSIGN_PASSWORD has to have its password": locked, "no such file": "/nowhere",
	} {
		err := run([]string{"-root", root, "-out", t.TempDir(), "-version", "v1.2.3-rc.1", "-whole", "-check", "-key", file})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// commands are those of a page that a pattern names.
func commands(t *testing.T, page, pattern string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^\$ (`+pattern+`)(?: .*\\\n)*.*$`).FindAllString(string(text), -1) {
		all = append(all, strings.TrimPrefix(line, "$ "))
	}
	if len(all) == 0 {
		t.Fatalf("%s has no command %s", page, pattern)
	}
	return all
}

// TestARealReleaseIsCheckedAndInstalled builds isthmus for Linux on both architectures, in two places,
// and releases it to a registry of the test. Then it runs the commands of the page on checking, and
// installs and starts what there is. It takes minutes, needs root, and is run by make test-release.
func TestARealReleaseIsCheckedAndInstalled(t *testing.T) {
	if os.Getenv("ISTHMUS_TEST_RELEASE") == "" {
		t.Skip("make test-release runs it")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin, work := filepath.Join(repository, "bin"), t.TempDir()
	env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "COSIGN_PASSWORD=secret", "HOME="+work, "COSIGN_YES=true", "KREW_ROOT="+filepath.Join(work, "krew"))
	sh := func(dir, script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v: %s", script, err, out)
		}
		t.Logf("$ %s\n%s", script, out)
		return string(out)
	}
	// Two places, in which the same bytes come out.
	other := filepath.Join(work, "another place")
	sh(repository, `git clone -q . "`+other+`"`)
	build := `for a in amd64 arm64; do CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" GOOS=linux GOARCH=$a go build -tags grpcnotrace -ldflags "-s -w -X main.version=v1.2.3-rc.1" -o `
	sh(repository, "export HOME=/root; "+build+work+"/isthmus-$a ./cmd/isthmus; done")
	sh(other, "export HOME=/root; "+build+work+"/other-$a ./cmd/isthmus; done")
	if sh(repository, "git status --porcelain") == "" { // else the clone is another commit's
		sh(work, "cmp isthmus-amd64 other-amd64 && cmp isthmus-arm64 other-arm64")
	}

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/mesh"
	root := place(t, changes)
	sh(work, "cosign generate-key-pair && cp cosign.pub "+filepath.Join(root, publicKey))
	sh(repository, "cp -r deploy/systemd deploy/chart LICENSE README.md "+root+" && rm -r "+root+"/deploy/systemd "+root+"/deploy/chart && mv "+root+"/systemd "+root+"/chart "+root+"/deploy/")
	t.Setenv("COSIGN_PASSWORD", "secret")
	args := []string{"-root", root, "-out", work, "-version", "v1.2.3-rc.1", "-commit", "abc", "-time", "1760000000", "-whole", "-to", to, "-key", filepath.Join(work, "cosign.key")}
	for _, image := range []string{"isthmus", "daprd-isthmus"} {
		args = append(args, image+"=linux/amd64:"+work+"/isthmus-amd64", image+"=linux/arm64:"+work+"/isthmus-arm64")
	}
	for range 2 { // the second finds all of it there
		if err := run(args); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(work, "release")
	here := strings.NewReplacer("1.2.3", "1.2.3-rc.1", "ghcr.io/isthmus-mesh", to, "cosign verify ", "cosign verify --allow-http-registry ",
		"cosign verify-attestation ", "cosign verify-attestation --allow-http-registry ")
	checks := commands(t, filepath.Join(repository, "docs/how-to/check-a-release.md"), "cosign|openssl|sha256sum")
	for _, command := range checks {
		sh(dir, here.Replace(command))
	}
	// With one byte changed, each check fails.
	for file, check := range map[string]string{sums: "cosign verify-blob ", "isthmus-1.2.3-rc.1-linux-amd64.tar.gz": "cosign verify-blob-attestation "} {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Clone(text)
		changed[len(changed)/2] ^= 1
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range checks {
			if !strings.HasPrefix(command, check) {
				continue
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-c", here.Replace(command))
			cmd.Dir, cmd.Env = dir, env
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("%s takes a file that was changed: %s", command, out)
			}
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		t.Fatal("qemu-aarch64-static is missing; get it with: make test-release, or install it: apt-get install qemu-user-static")
	}
	started(t, []string{emulator, filepath.Join(work, "isthmus-arm64")}, work)

	// What systems install, on this one with all that is written kept apart.
	inside := `/usr/bin/isthmus version --client | grep 1.2.3-rc.1 && /usr/bin/kubectl-isthmus version --client && grep "^ExecStart=/usr/bin/isthmus" /usr/lib/systemd/system/isthmus.service && test -d /etc/isthmus`
	apart := func(script string) string {
		return "unshare -m bash -euo pipefail -c 'mkdir -p /tmp/apart && mount -t tmpfs none /tmp/apart && cd /tmp/apart && mkdir up work all && mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work all && " +
			"mkdir -p all/packages && mount --bind " + dir + " all/packages && mount -t proc proc all/proc && chroot all bash -euo pipefail -c \"" + strings.ReplaceAll(script, `"`, `\"`) + "\"'"
	}
	sh(work, apart("dpkg -i /packages/isthmus-1.2.3-rc.1-linux-amd64.deb && "+inside+" && dpkg -r isthmus && ! test -e /usr/bin/isthmus"))
	sh(work, apart("rpm --initdb && rpm -i --nodeps /packages/isthmus-1.2.3-rc.1-linux-amd64.rpm && "+inside+" && rpm -e isthmus && ! test -e /usr/bin/isthmus"))
	sh(work, "krew install --manifest=release/isthmus.krew.yaml --archive=release/isthmus-1.2.3-rc.1-linux-amd64.tar.gz && krew/bin/kubectl-isthmus version --client")
	sh(work, "ruby -c release/isthmus.rb")
}

// started starts a service without clusters, and waits until it is ready.
func started(t *testing.T, program []string, dir string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := free.Addr().String()
	free.Close()
	config := filepath.Join(dir, "isthmus.yaml")
	text := "cluster: west\nidentity: {insecure: true}\nstore: {embedded: {}}\ndataDir: " + dir + "/data\nlisten: {admin: \"" + admin + "\", resolver: \"127.0.0.1:0\"}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], "serve", "-c", config)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	defer func() { cancel(); <-ended }()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := http.DefaultClient.Do(req); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ended:
			t.Fatalf("%q has ended: %s", program, out.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
