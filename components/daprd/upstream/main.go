// Command upstream makes a patch for Dapr's repositories: the name resolver "isthmus", and the
// conformance suite. Everything in it follows from the code of this one: it copies the declarations
// that the resolver reaches, generates the messages that they use, and writes the files that Dapr
// wants beside a component from the tags of its settings.
//
//	go run -tags stablecomponents ./upstream -out DIRECTORY
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

const (
	ours      = "github.com/isthmus-mesh/isthmus/"
	component = ours + "components/daprd/upstream/isthmus"
	messages  = ours + "api/isthmus/v1alpha1"
	contrib   = "github.com/dapr/components-contrib/"
	inContrib = "nameresolution/isthmus"
)

// license is on each file of Dapr.
const license = `/*
Copyright 2026 The Dapr Authors
Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at
    http://www.apache.org/licenses/LICENSE-2.0
Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

`

func main() {
	log.SetFlags(0)
	out := flag.String("out", "", "directory for the patch")
	flag.Parse()
	if *out == "" {
		log.Fatal("upstream: -out is missing: name a directory")
	}
	if err := assemble(".", *out); err != nil {
		log.Fatal("upstream: ", err)
	}
	log.Printf("copy each folder in %s over a clone of Dapr's repository of that name", *out)
}

// assemble writes the patch: a folder for each of Dapr's repositories. module is the directory of the
// module components/daprd.
func assemble(module, out string) error {
	root := filepath.Join(module, "..", "..")
	to := func(parts ...string) string {
		return filepath.Join(append([]string{out, "components-contrib"}, parts...)...)
	}
	reached, err := reach(module)
	if err != nil {
		return err
	}
	for pkg, files := range reached.files {
		dir := to(inContrib)
		if pkg != component {
			dir = to(inContrib, "internal", path.Base(pkg))
		}
		for name, text := range files {
			if strings.HasSuffix(name, ".go") {
				text = append([]byte(license), moved(text)...)
			}
			if err := write(filepath.Join(dir, name), text); err != nil {
				return err
			}
		}
	}
	if err := reached.generate(root, to(inContrib, "internal", path.Base(messages))); err != nil {
		return err
	}
	fields, err := reached.fields()
	if err != nil {
		return err
	}
	if err := write(to(inContrib, "metadata.yaml"), metadataYAML(fields)); err != nil {
		return err
	}
	// What is copied as it is.
	for from, dir := range map[string]string{
		"upstream/isthmus":     to(inContrib),
		"conformance":          to("tests/conformance/nameresolution"),
		"upstream/conformance": to("tests/conformance/nameresolution"),
		"upstream/certified":   to("tests/certification/nameresolution/isthmus"),
	} {
		if err := copied(filepath.Join(module, from), dir, fields); err != nil {
			return err
		}
	}
	if err := docsPage(to(inContrib, "README.md"), filepath.Join(out, "docs")); err != nil {
		return err
	}
	return registration(module, filepath.Join(out, "dapr"))
}

// docsPage writes the resolver's page for Dapr's documentation, from the one beside the code.
func docsPage(readme, to string) error {
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	title, body, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
	return write(filepath.Join(to, "daprdocs/content/en/reference/components-reference/supported-name-resolution/nr-isthmus.md"), fmt.Appendf(nil, `---
type: docs
title: %[1]q
linkTitle: %[1]q
description: "Detailed information on the %[1]s name resolution component"
---
%s
## Related links

- [Service invocation building block]({{< ref service-invocation >}})
`, title, body))
}

// registration writes the file that registers the resolver in daprd, as that of another one does.
func registration(module, to string) error {
	const file = "cmd/daprd/components/nameresolution_%s.go"
	dapr, err := source(module, "github.com/dapr/dapr")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dapr, fmt.Sprintf(file, "sqlite")))
	if err != nil {
		return err
	}
	return write(filepath.Join(to, fmt.Sprintf(file, "isthmus")), bytes.ReplaceAll(text, []byte("sqlite"), []byte("isthmus")))
}

// source is the directory of a module's source.
func source(module, of string) (dir string, err error) {
	list, err := run(module, "go", "list", "-m", "-f", "{{.Dir}}", of)
	return strings.TrimSpace(string(list)), err
}

// copied copies what is not reached by code: all of the suite but our tests of it, and tests and pages
// of the resolver.
func copied(from, to string, fields []field) error {
	names, err := fs.Glob(os.DirFS(from), "*")
	if err != nil || len(names) == 0 {
		return fmt.Errorf("nothing to copy in %s (%v)", from, err)
	}
	suite := filepath.Base(from) == "conformance" && filepath.Base(filepath.Dir(from)) != "upstream"
	for _, name := range names {
		code, test := strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go")
		if suite && test || filepath.Base(from) == "isthmus" && code && !test {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if code {
			text = append([]byte(license), moved(text)...)
		}
		text = bytes.ReplaceAll(text, []byte("<!-- fields -->\n"), table(fields))
		if err := write(filepath.Join(to, name), text); err != nil {
			return err
		}
	}
	return nil
}

// moved is code with imports of what stands in Dapr's repository.
func moved(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte(ours+"components/daprd/conformance"), []byte(contrib+"tests/conformance/nameresolution"))
	text = bytes.ReplaceAll(text, []byte(component), []byte(contrib+inContrib))
	for _, line := range bytes.Split(text, []byte("\n")) {
		if _, old, ok := bytes.Cut(line, []byte(`"`+ours)); ok {
			name := path.Base(string(bytes.TrimSuffix(old, []byte(`"`))))
			text = bytes.ReplaceAll(text, append([]byte(ours), bytes.TrimSuffix(old, []byte(`"`))...), []byte(contrib+inContrib+"/internal/"+name))
		}
	}
	return text
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// run runs a program, whose output is in the error.
func run(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.Bytes(), failed.Bytes())
	}
	return out.Bytes(), nil
}
