package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is a setting that must not be shown, as [settings.Secret].
type secret struct {
	File string `yaml:"file"`
	Env  string `yaml:"env"`
}

func (secret) Instead() (what, fix string) {
	return "a secret does not stand here itself", "write where it is: {file: /run/secrets/name} or {env: NAME}"
}

type inner struct {
	Path string `json:"path"`
}

type untyped struct {
	Name   string         `json:"name"`
	On     bool           `json:"on"`
	Maybe  *bool          `json:"maybe"`
	Count  int            `json:"count"`
	Small  int8           `json:"small"`
	Wait   time.Duration  `json:"wait"`
	List   []string       `json:"list"`
	Inner  inner          `json:"inner"`
	Other  *inner         `json:"other"`
	Many   []inner        `json:"many"`
	Free   any            `json:"free"`
	Map    map[string]any `json:"map"`
	Token  *secret        `json:"token"`
	Hidden string         `json:"-"`
}

const everything = `
name: a
on: true
maybe: false
count: 7
small: -8
wait: 1m30s
list: [x, y]
inner: {path: p}
other: {path: q}
many: [{path: r}, {path: s}]
free: {deep: [1, {er: true}]}
map: {k: {l: m}}
token: {env: TOKEN}
`

func TestEveryKindOfValue(t *testing.T) {
	no := false
	want := untyped{
		Name: "a", On: true, Maybe: &no, Count: 7, Small: -8, Wait: 90 * time.Second, List: []string{"x", "y"},
		Inner: inner{"p"}, Other: &inner{"q"}, Many: []inner{{"r"}, {"s"}}, Token: &secret{Env: "TOKEN"},
		Map: map[string]any{"k": map[string]any{"l": "m"}},
	}
	var fromYAML, throughJSON any
	if err := yaml.Unmarshal([]byte(everything), &fromYAML); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &throughJSON); err != nil {
		t.Fatal(err)
	}
	for source, from := range map[string]any{"YAML": fromYAML, "JSON, whose numbers are floating-point": throughJSON} {
		var got untyped
		if errs := DecodeValue("store", from, &got); len(errs) > 0 {
			t.Errorf("%s: %v", source, errs)
		}
		free, _ := json.Marshal(got.Free)
		if got.Free = nil; string(free) != `{"deep":[1,{"er":true}]}` || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, free %s", source, got, free)
		}
	}
}

func TestOtherTypesOfTheSameValues(t *testing.T) {
	var got untyped
	from := map[any]any{"count": uint64(7), "list": []string{"x"}, "inner": map[any]any{"path": "p"}, "free": map[any]any{"k": []any{map[any]any{"l": 1}}}}
	if errs := DecodeValue("", from, &got); len(errs) > 0 || got.Count != 7 || got.List[0] != "x" || got.Inner.Path != "p" {
		t.Errorf("got %+v, %v", got, errs)
	}
	if text, err := json.Marshal(got.Free); err != nil || string(text) != `{"k":[{"l":1}]}` {
		t.Errorf("free: %s, %v", text, err)
	}
}

func TestMistakesAreNamedByTheirPath(t *testing.T) {
	for text, want := range map[string]string{
		`nmae: a`:                          `store.nmae: unknown field; did you mean "name"?`,
		`zzz: a`:                           `store.zzz: unknown field; the fields here are name, on, maybe,`,
		`Hidden: a`:                        `store.Hidden: unknown field`,
		`name: 7`:                          `store.name: 7 is a whole number where a text is wanted; put it in quotes`,
		`name: ''`:                         `store.name: is empty; write a text, or leave the field out`,
		`name: [a]`:                        `store.name: is a list where one value is wanted; write a text`,
		`name:`:                            `store.name: has no value; give it one, or leave the field out`,
		`on: "true"`:                       `store.on: "true" does not fit; write true or false`,
		`maybe: 1`:                         `store.maybe: 1 does not fit; write true or false`,
		`count: 1.5`:                       `store.count: 1.5 does not fit; write a whole number such as 100`,
		`count: "7"`:                       `store.count: "7" does not fit; write a whole number such as 100`,
		`small: 128`:                       `store.small: 128 does not fit; write a whole number`,
		`count: 1e300`:                     `store.count: 1e+300 does not fit; write a whole number`,
		`wait: 90`:                         `store.wait: 90 does not fit; write a length of time such as "10s"`,
		`wait: soon`:                       `store.wait: "soon" does not fit; write a length of time`,
		`wait: -1s`:                        `store.wait: "-1s" does not fit; write a length of time`,
		`list: x`:                          `store.list: is "x" where a list is wanted`,
		`list: [x, 7]`:                     `store.list[1]: 7 is a whole number where a text is wanted`,
		`inner: p`:                         `store.inner: is "p" where a mapping is wanted`,
		`other: {pth: p}`:                  `store.other.pth: unknown field; did you mean "path"?`,
		`many: [{path: a}, {}, {path: 1}]`: `store.many[2].path: 1 is a whole number where a text is wanted`,
		`map: {1: a}`:                      `store.map: has the key 1; write keys as text`,
		`free: [{1: a}]`:                   `store.free[0]: has the key 1; write keys as text`,
		`list: "http://me:hunter2@a:1"`:    `store.list: is a text where a list is wanted`,
		`inner: "redis://:hunter2@a:1"`:    `store.inner: is a text where a mapping is wanted`,
		`token: hunter2`:                   `store.token: a secret does not stand here itself; write where it is: {file: `,
	} {
		var from any
		if err := yaml.Unmarshal([]byte(text), &from); err != nil {
			t.Fatal(err)
		}
		var got untyped
		errs := DecodeValue("store", from, &got)
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) || strings.Contains(errs[0].Error(), "hunter2") {
			t.Errorf("%s: %v\nwant %s", text, errs, want)
		}
	}
	var got untyped
	if errs := DecodeValue("", map[string]any{"nmae": 1, "on": 2, "count": "x"}, &got); len(errs) != 3 || !strings.HasPrefix(errs[2].Error(), "on: ") {
		t.Errorf("three mistakes: %v", errs)
	}
	if errs := DecodeValue("", "text", &got); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), `is "text" where a mapping is wanted`) {
		t.Errorf("no mapping at all: %v", errs)
	}
}

// A secret that stands where its place should be named is not repeated.
func TestAnUntypedSecretIsNotShown(t *testing.T) {
	for _, from := range []any{"hunter2", 4711, []any{"hunter2"}} {
		var got untyped
		errs := DecodeValue("store", map[string]any{"token": from}, &got)
		if len(errs) != 1 || strings.Contains(errs[0].Error(), "hunter2") || strings.Contains(errs[0].Error(), "4711") || !strings.Contains(errs[0].Error(), "{file: ") {
			t.Errorf("%v: %v", from, errs)
		}
	}
}

func TestReadingAnUntypedValueStopsAfterManyMistakes(t *testing.T) {
	keys := map[string]any{}
	for n := range 5000 {
		keys[fmt.Sprint("unknown-", n)] = n
	}
	var got untyped
	errs := DecodeValue("x", keys, &got)
	if len(errs) != MaxErrors || !strings.Contains(errs[MaxErrors-1].Error(), "reading stops here") {
		t.Errorf("%d mistakes, the last %v", len(errs), errs[len(errs)-1])
	}
}

// FuzzDecode holds that nothing that YAML can be makes Decode panic, and that what it
// takes without a mistake, it takes again.
func FuzzDecodeValue(f *testing.F) {
	f.Add(everything)
	f.Add("count: 9223372036854775808")
	f.Add("{? [a] : b}")
	f.Add("free: !!binary aGk=")
	f.Add("when: 2001-12-14t21:59:43.10-05:00")
	f.Fuzz(func(t *testing.T, text string) {
		var from any
		if yaml.Unmarshal([]byte(text), &from) != nil {
			return
		}
		var once, twice untyped
		if len(DecodeValue("x", from, &once)) > 0 {
			return
		}
		if errs := DecodeValue("x", from, &twice); len(errs) > 0 || !reflect.DeepEqual(once, twice) && once.Free == nil && once.Map == nil {
			t.Errorf("%q: %+v, then %+v, %v", text, once, twice, errs)
		}
	})
}
