package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	long := "    " + strings.Repeat("word ", 30)
	got := script("\n1. First\n  $ isthmus status\n" + long + "\n")
	want := []struct{ class, begins string }{
		{"plain", ""}, {"step", "1. First"}, {"command", "  $ isthmus status"}, {"plain", "    word word"}, {"plain", "      word"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines: %+v; want %d", len(got), got, len(want))
	}
	for i, w := range want {
		if got[i].Class != w.class || !strings.HasPrefix(got[i].Text, w.begins) || len(got[i].Text) > columns {
			t.Errorf("line %d: %+v; want %s %q", i, got[i], w.class, w.begins)
		}
		if i > 0 && got[i].at < got[i-1].at {
			t.Errorf("line %d appears before line %d", i, i-1)
		}
	}
}

func TestAPictureIsXMLAndHidesADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.svg")
	text := strings.Repeat("line\n", 2*rows) + "/home/someone/bin says <a> & b\n"
	if err := record(file, "/home/someone", []string{"printf", "%s", text}); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(drawn); !strings.Contains(s, ">bin\u00a0says\u00a0&lt;a&gt;\u00a0&amp;\u00a0b<") || strings.Count(s, "<text") != 2*rows+1 {
		t.Errorf("the picture:\n%s", s)
	}
	for d := xml.NewDecoder(strings.NewReader(string(drawn))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestACommandThatFailsIsNamed(t *testing.T) {
	if err := record(filepath.Join(t.TempDir(), "p.svg"), "", []string{"false"}); err == nil || !strings.Contains(err.Error(), "false") {
		t.Errorf("%v; want one that names the command", err)
	}
	if err := record("p.svg", "", nil); err == nil {
		t.Error("no command: no error")
	}
}
