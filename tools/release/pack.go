package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// semantic is a version of https://semver.org with "v".
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// entry is a file in an archive, or a directory where the name ends in "/".
type entry struct {
	name  string
	mode  int64 // 0: 0755 of a directory, 0644 of a file
	owner int
	text  []byte
}

// tar packs files in this order, with the time of the commit and nothing of this machine.
func (o *options) tar(files []entry) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: cmp.Or(f.mode, 0o644), Size: int64(len(f.text)), Uid: f.owner, Gid: f.owner, ModTime: o.time, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, cmp.Or(f.mode, 0o755)
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// gzipped is a tar.gz.
func (o *options) gzipped(files []entry) ([]byte, error) {
	text, err := o.tar(files)
	if err != nil {
		return nil, err
	}
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return small.Bytes(), nil
}

// filesIn are the files below a directory, sorted, under a prefix.
func filesIn(dir, prefix string) (files []entry, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, entry{name: prefix + filepath.ToSlash(name), text: text})
		return err
	})
	slices.SortFunc(files, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return files, err
}

// notes publishes what the changelog says of the version.
func (o *options) notes() error {
	section, err := o.section()
	if err != nil {
		return err
	}
	return o.publish("NOTES.md", []byte(strings.TrimSpace(section)+"\n"))
}

// section is the changelog's, of the version.
func (o *options) section() (string, error) {
	text, err := os.ReadFile(filepath.Join(o.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	_, after, found := strings.Cut(string(text), "\n## ["+o.number()+"]")
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section %q; name what is unreleased so, with its date", "## ["+o.number()+"]")
	}
	_, section, _ := strings.Cut(after, "\n")
	section, _, _ = strings.Cut(section, "\n## [")
	return section, nil
}

var versions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// charts publishes the charts as "helm package" makes them, in this version.
func (o *options) charts() error {
	dirs, err := filepath.Glob(filepath.Join(o.root, "deploy/chart/*/Chart.yaml"))
	if err != nil || len(dirs) == 0 {
		return fmt.Errorf("no chart in deploy/chart (%w)", err)
	}
	for _, path := range dirs {
		name := filepath.Base(filepath.Dir(path))
		files, err := filesIn(filepath.Dir(path), name+"/")
		if err != nil {
			return err
		}
		for i := range files {
			if files[i].name == name+"/Chart.yaml" {
				files[i].text = versions.ReplaceAll(files[i].text, []byte("$1: "+o.number()))
			}
		}
		text, err := o.gzipped(files)
		if err != nil {
			return err
		}
		if err := o.publish(name+"-"+o.number()+".tgz", text); err != nil {
			return err
		}
		if err := o.chart(name, files, text); err != nil {
			return fmt.Errorf("chart %s: %w", name, err)
		}
	}
	return nil
}

// archives publishes the command line for machines.
func (o *options) archives() error {
	var all []entry
	for _, name := range []string{"LICENSE", "README.md", unit} {
		text, err := os.ReadFile(filepath.Join(o.root, name))
		if err != nil {
			return err
		}
		all = append(all, entry{name: filepath.Base(name), text: text})
	}
	for _, b := range o.binaries {
		if b.image != "isthmus" {
			continue
		}
		binary, err := os.ReadFile(b.file)
		if err != nil {
			return err
		}
		text, err := o.gzipped(append(slices.Clone(all), entry{name: "isthmus", mode: 0o755, text: binary}))
		if err != nil {
			return err
		}
		if err := o.publish(fmt.Sprintf("isthmus-%s-%s-%s.tar.gz", o.number(), b.platform.OS, b.platform.Architecture), text); err != nil {
			return err
		}
	}
	return nil
}

// materials publishes a bill of materials of each binary (CycloneDX), from what Go's linker has put into it.
func (o *options) materials() error {
	for _, b := range o.binaries {
		info, err := buildinfo.ReadFile(b.file)
		if err != nil {
			return fmt.Errorf("%s: %w", b.file, err)
		}
		bom := cdx.NewBOM()
		bom.Metadata = &cdx.Metadata{Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: b.image, Version: o.version, PackageURL: "pkg:golang/" + info.Main.Path + "@" + o.version}}
		parts := []cdx.Component{{Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: info.GoVersion, PackageURL: "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}}
		for _, m := range info.Deps {
			switch r := m.Replace; {
			case r != nil && r.Version != "" && r.Version != "(devel)":
				m = r
			case r != nil: // a directory: the module of this repository
				m.Version = o.version
			}
			parts = append(parts, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: "pkg:golang/" + m.Path + "@" + m.Version})
		}
		bom.Components = &parts
		var text bytes.Buffer
		encoder := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON)
		if err := encoder.SetPretty(true).Encode(bom); err != nil {
			return err
		}
		if err := o.publish(fmt.Sprintf("%s-%s-%s-%s.cdx.json", b.image, o.number(), b.platform.OS, b.platform.Architecture), text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// checksums publishes those of all that was published before, as sha256sum -c takes them.
func (o *options) checksums() error {
	files, err := filesIn(filepath.Join(o.out, "release"), "")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, f := range files {
		if f.name != sums {
			fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(f.text), f.name)
		}
	}
	if text.Len() == 0 {
		return errors.New("nothing was published")
	}
	return o.publish(sums, text.Bytes())
}

const sums = "SHA256SUMS"
