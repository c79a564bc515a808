// Command release packs what is built into what is published: OCI images, charts and archives, with
// checksums and bills of materials. It needs no container runtime. The same binaries, version and
// time give the same bytes on every machine.
//
//	release -out dist -version v1.2.3 -commit 4f5e -time 1760000000 isthmus=linux/amd64:dist/isthmus …
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/modfile"
)

type options struct {
	out, version, commit, to string
	whole                    bool // charts and archives besides the images
	check                    bool // say whether the version can be released, and no more
	time                     time.Time
	root                     string // of the repository
	binaries                 []binary
	pushes                   []artifact // what goes to the registry, in this order
	signer                   *signer    // nil: nothing is signed
}

// binary is a file for one platform of an image.
type binary struct {
	image    string
	platform v1.Platform
	file     string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.check {
		return nil
	}
	steps := []func() error{o.images}
	if o.whole {
		if err := os.RemoveAll(filepath.Join(o.out, "release")); err != nil {
			return err
		}
		steps = append(steps, o.notes, o.charts, o.archives, o.packages, o.manifests, o.materials, o.provenance, o.checksums, o.signatures)
	}
	for _, step := range append(steps, o.push) { // others see nothing of a release that can't be packed
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func parse(args []string) (*options, error) {
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	o := &options{}
	flags.StringVar(&o.out, "out", "dist", "where all of it goes")
	flags.StringVar(&o.root, "root", ".", "the repository")
	flags.StringVar(&o.version, "version", "", "of what is packed, such as v1.2.3")
	flags.StringVar(&o.commit, "commit", "", "that it is built from")
	flags.StringVar(&o.to, "to", "", "push the images to this registry as well, such as registry.example/isthmus")
	flags.BoolVar(&o.whole, "whole", false, "pack charts and archives besides the images; the version must be a semantic one")
	flags.BoolVar(&o.check, "check", false, "only say whether the version can be released")
	key := flags.String("key", "", "sign all of a whole release by this private key (PEM; COSIGN_PASSWORD has its password)")
	seconds := flags.Int64("time", 0, "of the commit, in seconds since 1970: the date of all files")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.version == "" || flags.NArg() == 0 && !o.check {
		return nil, errors.New("want -version and binaries, such as isthmus=linux/amd64:bin/isthmus")
	}
	if err := o.releasable(); err != nil {
		return nil, err
	}
	if *key != "" && o.whole {
		s, err := newSigner(*key, o.root)
		if err != nil {
			return nil, err
		}
		o.signer = s
	}
	o.time = time.Unix(*seconds, 0).UTC()
	for _, arg := range flags.Args() {
		image, rest, found := strings.Cut(arg, "=")
		platform, file, more := strings.Cut(rest, ":")
		p, err := v1.ParsePlatform(platform)
		if err != nil || !found || !more || !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == image }) {
			return nil, fmt.Errorf("%q is no binary; write image=system/architecture:file, such as isthmus=linux/amd64:bin/isthmus", arg)
		}
		o.binaries = append(o.binaries, binary{image, *p, file})
	}
	slices.SortFunc(o.binaries, func(a, b binary) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.platform.String(), b.platform.String()))
	})
	return o, nil
}

// looksReleased is a version that a reader would take for that of a release.
var looksReleased = regexp.MustCompile(`^v?[0-9]+\.`)

// releasable says what is wrong with the version. Images that are no release may be called as git
// describes their commit.
func (o *options) releasable() error {
	if (o.whole || looksReleased.MatchString(o.version)) && !semantic.MatchString(o.version) {
		return fmt.Errorf("-version %q is no semantic version; write one such as v1.2.3 or v1.2.3-rc.1 (https://semver.org)", o.version)
	}
	if !o.whole {
		return nil
	}
	if _, err := o.section(); err != nil {
		return err
	}
	return o.required()
}

// required says whether the module of daprd requires the rest of Isthmus at this version. Others take
// both from a proxy, where nothing is replaced.
func (o *options) required() error {
	const path, module = "components/daprd/go.mod", "github.com/isthmus-mesh/isthmus"
	text, err := os.ReadFile(filepath.Join(o.root, path))
	if err != nil {
		return err
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return err
	}
	for _, r := range file.Require {
		if r.Mod.Path == module && r.Mod.Version == o.version {
			return nil
		}
	}
	return fmt.Errorf("%s does not require %s %s; run make version VERSION=%[3]s and commit that", path, module, o.version)
}

// number is the version without "v", as charts and tags have it.
func (o *options) number() string { return strings.TrimPrefix(o.version, "v") }

// tag is the version as a tag of an image, which has no "+".
func (o *options) tag() string { return strings.ReplaceAll(o.number(), "+", "-") }

// publish writes a file of the release.
func (o *options) publish(name string, text []byte) error {
	path := filepath.Join(o.out, "release", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
