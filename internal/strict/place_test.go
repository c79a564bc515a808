package strict

import (
	"reflect"
	"testing"
)

func TestPathsArePlacedBesideTheirFile(t *testing.T) {
	type secret struct {
		File string `yaml:"file" file:""`
		Env  string `yaml:"env"`
	}
	type config struct {
		Data    string `file:""`
		Secrets string `file:"env"`
		Name    string
		Token   *secret
		None    *secret
		Several []secret
		hidden  string `file:""`
	}
	got := config{
		Data: "data", Secrets: "env", Name: "name", Token: &secret{File: "../token", Env: "TOKEN"},
		Several: []secret{{File: "/run/one"}, {File: "two"}, {}}, hidden: "hidden",
	}
	Place(&got, "etc/west")
	want := config{
		Data: "etc/west/data", Secrets: "env", Name: "name", Token: &secret{File: "etc/token", Env: "TOKEN"},
		Several: []secret{{File: "/run/one"}, {File: "etc/west/two"}, {}}, hidden: "hidden",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
