package page

import (
	"errors"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

func TestCommandsOfAPage(t *testing.T) {
	text := strings.ReplaceAll(`# Page

## First

'''console
$ helm install a \
  --set b=c
NAME: a
$ kubectl get pods
'''

'''sh
not this
'''
## Second
'''console
$ false
'''
`, "'''", "```")
	want := []Command{
		{Text: "helm install a \\\n  --set b=c", Section: "First", Line: 6, Prints: []string{"NAME: a"}},
		{Text: "kubectl get pods", Section: "First", Line: 9},
		{Text: "false", Section: "Second", Line: 17},
	}
	got := Console(text)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v", got)
	}
	g := &Ground{Dir: t.TempDir(), Lacks: func(c Command) string {
		if strings.HasPrefix(c.Text, "kubectl") {
			return "a cluster"
		}
		return ""
	}}
	if _, lacks, err := g.Type(t.Context(), want[1]); lacks != "a cluster" || err != nil {
		t.Errorf("%q, %v", lacks, err)
	}
	if _, _, err := g.Type(t.Context(), want[2]); !errors.As(err, new(*exec.ExitError)) || !strings.Contains(err.Error(), "line 17") {
		t.Errorf("a command that fails: %v", err)
	}
}
