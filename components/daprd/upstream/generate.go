package main

import (
	"errors"
	"fmt"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"
)

// generate makes the messages that are reached, from the same definition as ours.
func (r *reached) generate(root, dir string) error {
	at, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	dest := contrib + inContrib + "/internal/" + path.Base(messages)
	options := []string{"module=" + dest}
	for _, file := range []string{"services", "objects"} {
		options = append(options, "Misthmus/v1alpha1/"+file+".proto="+dest)
	}
	var plugins []any
	for _, name := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		plugins = append(plugins, map[string]any{"local": []string{"go", "tool", "-modfile=tools/go.mod", name}, "out": at, "opt": options})
	}
	template, err := yaml.Marshal(map[string]any{"version": "v2", "clean": false, "plugins": plugins})
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(at), "buf.gen.yaml")
	if err := write(file, template); err != nil {
		return err
	}
	defer os.Remove(file)
	args := []string{"tool", "-modfile=tools/go.mod", "buf", "generate", "api", "--template", file, "--type", "isthmus.v1alpha1.Resolver.Watch"}
	scope := r.byPath[messages].Types.Scope()
	for _, name := range scope.Names() {
		if isMessage(scope.Lookup(name)) && !r.uses(messages+"."+name) {
			args = append(args, "--exclude-type", "isthmus.v1alpha1."+name)
		}
	}
	_, err = run(root, "go", args...)
	return err
}

func isMessage(of types.Object) bool {
	name, ok := of.(*types.TypeName)
	if !ok || strings.Contains(name.Name(), "_") {
		return false
	}
	method, _, _ := types.LookupFieldOrMethod(types.NewPointer(name.Type()), false, of.Pkg(), "ProtoReflect")
	return method != nil
}

// uses tells whether a message is named, or one of its methods.
func (r *reached) uses(key string) bool {
	for kept := range r.kept {
		if kept == key || strings.HasPrefix(kept, key+".Get") {
			return true
		}
	}
	return false
}

// field is one of the component's settings.
type field struct{ name, kind, required, description, byDefault, example string }

// fields reads the settings' tags.
func (r *reached) fields() (all []field, err error) {
	settings, ok := r.byPath[component].Types.Scope().Lookup("settings").Type().Underlying().(*types.Struct)
	if !ok {
		return nil, errors.New("the component has no settings")
	}
	kinds := map[string]string{"string": "string", "bool": "bool", "time.Duration": "duration"}
	for i := range settings.NumFields() {
		tag, kind := reflect.StructTag(settings.Tag(i)), kinds[settings.Field(i).Type().String()]
		f := field{tag.Get("mapstructure"), kind, "false", tag.Get("description"), tag.Get("default"), tag.Get("example")}
		if tag.Get("required") != "" {
			f.required = tag.Get("required")
		}
		if f.name == "" || f.kind == "" || f.description == "" || f.example == "" {
			return nil, fmt.Errorf("the setting %s lacks a tag, or a kind that metadata.yaml has", settings.Field(i).Name())
		}
		all = append(all, f)
	}
	return all, nil
}

// metadataYAML is the file that Dapr wants of each component.
func metadataYAML(fields []field) []byte {
	var b strings.Builder
	b.WriteString(`# yaml-language-server: $schema=../../component-metadata-schema.json
schemaVersion: v1
type: nameresolution
name: isthmus
version: v1
status: alpha
title: "Isthmus"
urls:
  - title: Reference
    url: https://docs.dapr.io/reference/components-reference/supported-name-resolution/nr-isthmus/
metadata:
`)
	for _, f := range fields {
		fmt.Fprintf(&b, "  - name: %s\n    type: %s\n    required: %s\n    description: %q\n", f.name, f.kind, f.required, f.description)
		if f.byDefault != "" {
			fmt.Fprintf(&b, "    default: %q\n", f.byDefault)
		}
		fmt.Fprintf(&b, "    example: %q\n", f.example)
	}
	return []byte(b.String())
}

// table is the same for people, as Dapr's pages of components have it.
func table(fields []field) []byte {
	var b strings.Builder
	b.WriteString("| Field | Required | Details | Default | Example |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range fields {
		required, byDefault := "N", ""
		if f.required == "true" {
			required = "Y"
		}
		if f.byDefault != "" {
			byDefault = "`" + f.byDefault + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` |\n", f.name, required, f.description, byDefault, f.example)
	}
	return []byte(b.String())
}
