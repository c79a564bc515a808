package main

import (
	"go/parser"
	"go/token"
	"os"
	"testing"
)

// TestEachFaultFitsTheCode fails when the code of a fault has changed: then write the fault anew.
func TestEachFaultFitsTheCode(t *testing.T) {
	names, texts := map[string]bool{}, map[string]string{}
	for _, m := range mutants {
		if names[m.name] || m.code == m.fault {
			t.Errorf("%q is there twice, or changes nothing", m.name)
		}
		names[m.name] = true
		if texts[m.file] == "" {
			text, err := os.ReadFile("../../" + m.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[m.file] = string(text)
		}
		text, err := m.apply(texts[m.file])
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		texts[m.file] = text
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
