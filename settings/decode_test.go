package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type inner struct {
	Path string `json:"path"`
}

type example struct {
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
	Token  *Secret        `json:"token"`
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
	want := example{
		Name: "a", On: true, Maybe: &no, Count: 7, Small: -8, Wait: 90 * time.Second, List: []string{"x", "y"},
		Inner: inner{"p"}, Other: &inner{"q"}, Many: []inner{{"r"}, {"s"}}, Token: &Secret{Env: "TOKEN"},
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
		var got example
		if errs := Decode("store", from, &got); len(errs) > 0 {
			t.Errorf("%s: %v", source, errors.Join(errs...))
		}
		free, _ := json.Marshal(got.Free)
		if got.Free = nil; string(free) != `{"deep":[1,{"er":true}]}` || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, free %s", source, got, free)
		}
	}
}

func TestOtherTypesOfTheSameValues(t *testing.T) {
	var got example
	from := map[any]any{"count": uint64(7), "list": []string{"x"}, "inner": map[any]any{"path": "p"}, "free": map[any]any{"k": []any{map[any]any{"l": 1}}}}
	if errs := Decode("", from, &got); len(errs) > 0 || got.Count != 7 || got.List[0] != "x" || got.Inner.Path != "p" {
		t.Errorf("got %+v, %v", got, errs)
	}
	if text, err := json.Marshal(got.Free); err != nil || string(text) != `{"k":[{"l":1}]}` {
		t.Errorf("free: %s, %v", text, err)
	}
}

func TestMistakesAreNamedByTheirPath(t *testing.T) {
	for text, want := range map[string]string{
		`nmae: a`:                          `store.nmae: unknown key; did you mean "name"?`,
		`zzz: a`:                           `store.zzz: unknown key; the keys here are count, free, inner,`,
		`Hidden: a`:                        `store.Hidden: unknown key`,
		`name: 7`:                          `store.name: is the number 7; want a text`,
		`name: ''`:                         `store.name: is empty; give it a value, or leave the key out`,
		`name: [a]`:                        `store.name: is a list; want a text`,
		`name:`:                            `store.name: has no value; give it one, or leave the key out`,
		`on: "true"`:                       `store.on: is the text "true"; want true or false`,
		`maybe: 1`:                         `store.maybe: is the number 1; want true or false`,
		`count: 1.5`:                       `store.count: is the number 1.5; want a whole number such as 100`,
		`count: "7"`:                       `store.count: is the text "7"; want a whole number such as 100`,
		`small: 128`:                       `store.small: is the number 128; want a whole number`,
		`count: 1e300`:                     `store.count: is the number 1e+300; want a whole number`,
		`wait: 90`:                         `store.wait: is the number 90; want a length of time with its unit, such as "2s"`,
		`wait: soon`:                       `store.wait: "soon" is no length of time`,
		`wait: -1s`:                        `store.wait: "-1s" is no length of time`,
		`list: x`:                          `store.list: is the text "x"; want a list`,
		`list: [x, 7]`:                     `store.list[1]: is the number 7; want a text`,
		`inner: p`:                         `store.inner: is the text "p"; want a mapping`,
		`other: {pth: p}`:                  `store.other.pth: unknown key; did you mean "path"?`,
		`many: [{path: a}, {}, {path: 1}]`: `store.many[2].path: is the number 1; want a text`,
		`map: {1: a}`:                      `store.map: has the key 1; keys are text`,
		`free: [{1: a}]`:                   `store.free[0]: has the key 1; keys are text`,
		`list: "http://me:hunter2@a:1"`:    `store.list: is a text; want a list`,
		`inner: "redis://:hunter2@a:1"`:    `store.inner: is a text; want a mapping`,
		`token: hunter2`:                   `store.token: a secret does not stand here itself; write where it is: {file: `,
	} {
		var from any
		if err := yaml.Unmarshal([]byte(text), &from); err != nil {
			t.Fatal(err)
		}
		var got example
		errs := Decode("store", from, &got)
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) || strings.Contains(errs[0].Error(), "hunter2") {
			t.Errorf("%s: %v\nwant %s", text, errs, want)
		}
	}
	var got example
	if errs := Decode("", map[string]any{"nmae": 1, "on": 2, "count": "x"}, &got); len(errs) != 3 || !strings.HasPrefix(errs[2].Error(), "on: ") {
		t.Errorf("three mistakes: %v", errs)
	}
	if errs := Decode("", "text", &got); len(errs) != 1 || errs[0].Error() != `is the text "text"; want a mapping` {
		t.Errorf("no mapping at all: %v", errs)
	}
}

// A secret that stands where its place should be named is not repeated.
func TestASecretInTheWrongPlaceIsNotShown(t *testing.T) {
	for _, from := range []any{"hunter2", 4711, []any{"hunter2"}} {
		var got example
		errs := Decode("store", map[string]any{"token": from}, &got)
		if len(errs) != 1 || strings.Contains(errs[0].Error(), "hunter2") || strings.Contains(errs[0].Error(), "4711") || !strings.Contains(errs[0].Error(), "{file: ") {
			t.Errorf("%v: %v", from, errs)
		}
	}
}

func TestReadingStopsAfterManyMistakes(t *testing.T) {
	keys := map[string]any{}
	for n := range 5000 {
		keys[fmt.Sprint("unknown-", n)] = n
	}
	var got example
	errs := Decode("x", keys, &got)
	if len(errs) != maxErrors || !strings.Contains(errs[maxErrors-1].Error(), "reading stops here") {
		t.Errorf("%d mistakes, the last %v", len(errs), errs[len(errs)-1])
	}
}

// FuzzDecode holds that nothing that YAML can be makes Decode panic, and that what it
// takes without a mistake, it takes again.
func FuzzDecode(f *testing.F) {
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
		var once, twice example
		if len(Decode("x", from, &once)) > 0 {
			return
		}
		if errs := Decode("x", from, &twice); len(errs) > 0 || !reflect.DeepEqual(once, twice) && once.Free == nil && once.Map == nil {
			t.Errorf("%q: %+v, then %+v, %v", text, once, twice, errs)
		}
	})
}
