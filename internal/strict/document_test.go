package strict

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

type example struct {
	Name         string        `yaml:"name"`
	Count        int           `yaml:"count"`
	Ratio        *float64      `yaml:"ratio"`
	Wait         time.Duration `yaml:"wait"`
	Strict       bool          `yaml:"strict"`
	Tags         []string      `yaml:"tags"`
	Part         *part         `yaml:"part"`
	embeddedPart `yaml:",inline"`
	Token        *secret `yaml:"token"`
	At           []at    `yaml:"at,single"`
	Hidden       string  `yaml:"-"`
	Unnamed      string
}

type embeddedPart struct {
	Extra string `yaml:"extra"`
}

type at struct {
	Address string `yaml:"address,short"`
	As      string `yaml:"as"`
}

type part struct {
	Path string `yaml:"path"`
}

func TestAStructIsFilled(t *testing.T) {
	var got example
	doc := Decode("x.yaml", []byte(`# a comment
name: 12
count: 3
ratio: 1
wait: 1m30s
strict: true
tags: [a, b]
part: {path: /tmp}
extra: more
`), &got)
	if err := doc.Err(); err != nil {
		t.Fatal(err)
	}
	if got.Name != "12" || got.Count != 3 || *got.Ratio != 1 || got.Wait != 90*time.Second || !got.Strict ||
		!slices.Equal(got.Tags, []string{"a", "b"}) || got.Part.Path != "/tmp" || got.Extra != "more" {
		t.Errorf("got %+v", got)
	}
	if !doc.Has("part.path") || doc.Has("part.other") {
		t.Error("Has does not tell what was written")
	}
}

func TestAListMayBeItsOnlyItemAndAMappingItsMainField(t *testing.T) {
	for text, want := range map[string][]at{
		"at: x":                      {{"x", ""}},
		"at: {address: x, as: y}":    {{"x", "y"}},
		"at: [x]":                    {{"x", ""}},
		"at: [x, {address: z}, w]":   {{"x", ""}, {"z", ""}, {"w", ""}},
		"at:\n- address: x\n  as: y": {{"x", "y"}},
		"at: []":                     {},
	} {
		var got example
		doc := Decode("x.yaml", []byte(text), &got)
		if err := doc.Err(); err != nil || !slices.Equal(got.At, want) {
			t.Errorf("%q: %v, %v", text, got.At, err)
		}
	}
	for text, want := range map[string]string{
		"at: {adress: x}":        `x.yaml:1:6: at.adress: unknown field; did you mean "address"?`,
		"at: [x, {ass: x}]":      `x.yaml:1:10: at[1].ass: unknown field; did you mean "as"?`,
		`at: ""`:                 `x.yaml:1:5: at: is empty; write a text`,
		"at:":                    `x.yaml:1:4: at: has no value`,
		"at: [x, ~]":             `x.yaml:1:9: at[1]: has no value`,
		"at: [[x]]":              `x.yaml:1:6: at[0]: is a list where a mapping is wanted`,
		"at: {address: [x]}":     `x.yaml:1:15: at.address: is a list where one value is wanted`,
		"at: x\nat: [y]":         `x.yaml:2:1: at: is there twice, first in line 1; keep one of them`,
		"at: {as: x, as: x}":     `x.yaml:1:13: at.as: is there twice`,
		"at: [x, {address: }]":   `at[1].address: has no value`,
		"at: {address: x, 1: 2}": `at.1: unknown field`,
	} {
		var got example
		if err := Decode("x.yaml", []byte(text), &got).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestASecretInTheWrongPlaceIsNotShown(t *testing.T) {
	for _, text := range []string{"token: hunter2", "token: [hunter2]", "token: |\n  hunter2\n"} {
		var got example
		err := Decode("x.yaml", []byte(text), &got).Err()
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.HasPrefix(err.Error(), "x.yaml:1:8: token: a secret does not stand here itself; write where it is: {file: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAnAddressInTheWrongPlaceIsNotShown(t *testing.T) {
	for _, text := range []string{"tags: http://me:hunter2@127.0.0.1:1", "part: http://me:hunter2@127.0.0.1:1"} {
		var got example
		err := Decode("x.yaml", []byte(text), &got).Err()
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "is a text where a ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhereSomethingIsWrong(t *testing.T) {
	var got example
	doc := Decode("x.yaml", []byte("part: {pth: x}\ntags: [a, 7, []]\ncount: 1\n"), &got)
	for path, want := range map[string]bool{"part": true, "part.pth": true, "tags": true, "tags[2]": true, "par": false, "tag": false, "count": false, "name": false} {
		if doc.Wrong(path) != want {
			t.Errorf("%s is wrong: %t, want %t", path, !want, want)
		}
	}
}

func TestAnEmptyFileLeavesEverythingOut(t *testing.T) {
	for _, text := range []string{"", "\n# only this\n", "---\n", "null\n"} {
		var got example
		if err := Decode("x.yaml", []byte(text), &got).Err(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAMistakeHasAPlaceAndAnAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"nam: x":                      `x.yaml:1:1: nam: unknown field; did you mean "name"?`,
		"name: x\nzzzzzzz: y":         `x.yaml:2:1: zzzzzzz: unknown field; the fields here are name, count,`,
		"Unnamed: x":                  `x.yaml:1:1: Unnamed: unknown field`,
		"part: {pth: x}":              `x.yaml:1:8: part.pth: unknown field; did you mean "path"?`,
		"name: x\nname: y":            `x.yaml:2:1: name: is there twice, first in line 1; keep one of them`,
		"name:":                       `x.yaml:1:6: name: has no value; give it one, or leave the field out`,
		`name: ""`:                    `x.yaml:1:7: name: is empty; write a text`,
		"name: [x]":                   `x.yaml:1:7: name: is a list where one value is wanted; write a text`,
		"count: many":                 `x.yaml:1:8: count: "many" does not fit; write a whole number such as 100`,
		"count: 1.5":                  `x.yaml:1:8: count: 1.5 does not fit`,
		"count: 99999999999999999999": `does not fit`,
		"wait: 10":                    `x.yaml:1:7: wait: 10 does not fit; write a length of time such as "10s"`,
		"wait: -1s":                   `x.yaml:1:7: wait: "-1s" does not fit`,
		"strict: yes please":          `x.yaml:1:9: strict: "yes please" does not fit; write true or false`,
		"ratio: half":                 `x.yaml:1:8: ratio: "half" does not fit; write a number such as 0.5`,
		"tags: a":                     `x.yaml:1:7: tags: is "a" where a list is wanted; begin each item with "- "`,
		"tags:\n- a\n-":               `x.yaml:3:2: tags[1]: has no value`,
		"part: x":                     `x.yaml:1:7: part: is "x" where a mapping is wanted; write its fields: path`,
		"- x":                         `x.yaml:1:1: is a list where a mapping is wanted`,
		"name: !!str 1":               `x.yaml:1:7: tag !!str is not taken`,
		"wait: 0s":                    `x.yaml:1:7: wait: "0s" does not fit`,
		"name: x\n  count: 1":         `x.yaml:2:1: not YAML: mapping values are not allowed in this context; mend it near this line`,
		"name: x\n---\nname: y":       `a second document begins here; keep one`,
		"\tname: x":                   `x.yaml:1:1: not YAML: the line is indented with a tab; use spaces`,
		"part:\n \tpath: x":           `x.yaml:2:1: not YAML: the line is indented with a tab; use spaces`,
		"name: *":                     `x.yaml:1:1: not YAML: a * without quotes refers to another part of the file; write "*" in quotes`,
		"part: {path: *}":             `x.yaml:1:1: not YAML: a * without quotes refers to another part of the file; write "*" in quotes`,
	} {
		var got example
		err := Decode("x.yaml", []byte(text), &got).Err()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestEveryMistakeIsReported(t *testing.T) {
	var got example
	err := Decode("x.yaml", []byte("count: a\nwait: b\nother: c\n"), &got).Err()
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines: %v", err)
	}
}

func TestReadingStopsAfterManyMistakes(t *testing.T) {
	for name, text := range map[string]string{"keys": "", "items": "at:\n"} {
		for n := range 5000 {
			if name == "keys" {
				text += fmt.Sprintf("unknown-%d: a\n", n)
			} else {
				text += "- {addres: b}\n"
			}
		}
		var errs Errors
		if !errors.As(Decode("x.yaml", []byte(text), &example{}).Err(), &errs) || len(errs) != MaxErrors || !strings.Contains(errs[MaxErrors-1].What, "reading stops here") {
			t.Errorf("%s: %d mistakes, the last %v", name, len(errs), errs[len(errs)-1])
		}
	}
}

func TestAReaderRefusesAtThePlaceOfAPath(t *testing.T) {
	doc := Decode("x.yaml", []byte("name: x\npart:\n  path: y\n"), &example{})
	doc.Refuse("part.path", "is wrong", "mend it")
	doc.Refuse("part.more.still", "is missing", "write it")
	doc.Refuse("count", "is missing", "write it")
	want := "x.yaml:1:1: count: is missing; write it\nx.yaml:3:3: part.more.still: is missing; write it\nx.yaml:3:9: part.path: is wrong; mend it"
	if got := doc.Err().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What is missing may stand in what can't be read.
func TestAFileThatIsNotYAMLHasOneMistake(t *testing.T) {
	doc := Decode("x.yaml", []byte("name: x\n  part: {\n"), &example{})
	doc.Refuse("count", "is missing", "write it")
	var errs Errors
	if !errors.As(doc.Err(), &errs) || len(errs) != 1 || !strings.HasPrefix(errs[0].What, "not YAML: ") {
		t.Errorf("got\n%v", doc.Err())
	}
}

func TestPathsAreThoseOfTheTags(t *testing.T) {
	want := []string{"name", "count", "ratio", "wait", "strict", "tags", "part.path", "extra", "token.file", "token.env", "at", "at[].address", "at[].as"}
	if got := Paths(&example{}); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("name: x\npart: {path: y}\ntags: [a]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got example
		doc := Decode("x.yaml", text, &got)
		if doc.Err() == nil && got.Part != nil && doc.Has("part.path") && got.Part.Path == "" {
			t.Error("an empty text was taken")
		}
	})
}
