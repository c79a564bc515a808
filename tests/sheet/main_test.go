package main

import (
	"strings"
	"testing"
)

func TestSheet(t *testing.T) {
	var out strings.Builder
	if err := run(&out, "testdata/tree", 1); err != nil {
		t.Fatal(err)
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		printed[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"function lines, 90th / 99th percentile 43 / 106 40 / 89 28 / 70 20 / 45 47 / 158 32 / 94 5 / 5",
		"file lines, median / files over 500 76 / 8 115 / 7 137 / 1 72 / 3 159 / 13 125 / 7 7 / 0",
		"largest interface, methods 17 8 1 5 7 16 3",
		"init() functions 67 16 0 0 36 1 1",
		"packages with a package comment 61 % 100 % 33 % 30 % 6 % 17 % 50 %",
		"test lines per code line 1.6 2.0 0.8 1.0 1.2 0.9 0.1",
		"methods on the largest type 34 35 16 35 14 – 3",
		"words a sentence in docs 13.1 15.2 – 12.3 13.1 – 6.0",
		"noun clauses per 1,000 words 0.1 0.2 – 0 0.1 – 55.6",
		"largest type: shop.Cart, 3 methods",
		"largest interface: shop.Store, 3 methods",
		"33 19 3 5 shop",
		"7 3 0 0 stock",
		"40 22 3 5 all",
	} {
		if !printed[want] {
			t.Errorf("no line %q in:\n%s", want, &out)
		}
	}
}

func TestFoldersHaveTheirOwnLines(t *testing.T) {
	deep, err := measure("testdata", 2)
	if err != nil {
		t.Fatal(err)
	}
	if l := deep.folders["tree/stock"]; l.all != 7 {
		t.Errorf("tree/stock has %d lines; want 7: %v", l.all, deep.folders)
	}
}

func TestNoCodeIsAnError(t *testing.T) {
	if _, err := measure(t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "no Go code") {
		t.Errorf("%v; want no Go code", err)
	}
}
