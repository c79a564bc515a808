package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/isthmus-mesh/isthmus/internal/show"
)

// takesApp are commands with an app among their arguments, and what else they need.
var takesApp = map[string]string{
	"isthmus apps": "", "isthmus calls": "", "isthmus sidecars": "", "isthmus top": "--once", "isthmus policies": "", "isthmus guard check": "",
	"isthmus resolve": "--from=shop/checkout", "isthmus explain": "--from=shop/checkout", "isthmus describe": "", "isthmus shift": "--to=east=5%",
}

// appFlags are flags whose value is an app, of any command.
var appFlags = []string{"from", "to", "app", "inbound"}

// run runs a command against a port where nobody listens, and returns its error.
func runNowhere(t *testing.T, args ...string) error {
	t.Helper()
	root := newRoot()
	root.SetArgs(append(args, "--insecure", "--server=127.0.0.1:1", "--timeout=5s"))
	root.SetOut(&bytes.Buffer{})
	root.SetErr(&bytes.Buffer{})
	root.SetIn(strings.NewReader(""))
	return root.ExecuteContext(t.Context())
}

// goesOn matches what an error says to do: it names a flag, a command or what to write.
var goesOn = regexp.MustCompile(`(?i)name |want |write |usage: |see |give |by -|is isthmus serve running|did you mean|keep one|certificates have letters|run: |stands alone|isthmus `)

// TestAWalkThroughAllCommands holds each command to its page, to both names of an app, and to errors
// that say what to do.
func TestAWalkThroughAllCommands(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("ISTHMUS_SOCKET", "off")
	walked := 0
	each(newRoot(), func(cmd *cobra.Command) {
		walked++
		path := cmd.CommandPath()
		if cmd.Parent().Name() == "completion" {
			return
		}
		if _, err := os.Stat(filepath.Join("../../docs", pageOf(cmd))); err != nil {
			t.Errorf("%s: its page: %v", path, err)
		}
		if !cmd.Parent().HasParent() && cmd.GroupID == "" {
			t.Errorf("%s is in no group of the help; add it to places", path)
		}
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil || !strings.HasSuffix(strings.TrimSpace(help.String()), show.Docs(pageOf(cmd))) {
			t.Errorf("%s: the help does not end with its page: %v", path, err)
		}
		if strings.Contains(help.String(), "--sentry-trust-domain") && cmd.Name() != "options" && cmd.Parent().Name() != "context" {
			t.Errorf("%s: the help has flags of isthmus options", path)
		}
		words := strings.Fields(path)[1:]
		err := runNowhere(t, append(words, "--frobnicate")...)
		if err == nil || !goesOn.MatchString(err.Error()) {
			t.Errorf("%s --frobnicate: %v", path, err)
		}
		both(t, cmd, words)
	})
	if walked < 40 {
		t.Errorf("walked through %d commands", walked)
	}
}

// both tries an app by both names wherever a command takes one: neither is wrong use, and one without
// its namespace is, unless it is the caller's.
func both(t *testing.T, cmd *cobra.Command, words []string) {
	if with, takes := takesApp[cmd.CommandPath()]; takes {
		for _, app := range []string{"shop/orders", "orders.shop", "shop/orders.billing", "shop/or!ders"} {
			args := append(words[:len(words):len(words)], app)
			if with != "" {
				args = append(args, with)
			}
			expect(t, args, !strings.ContainsAny(app, "!") && !strings.Contains(app, "billing"))
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		for _, name := range appFlags {
			if f.Name != name || cmd.Parent().Name() == "store" || cmd.Name() == "rotate" || cmd.Name() == "join" || cmd.Name() == "shift" && name == "to" {
				continue
			}
			args := words[:len(words):len(words)]
			switch {
			case cmd.Name() == "resolve" || cmd.Name() == "explain" && name == "from":
				args = append(args, "orders")
			case cmd.Name() == "explain" && name == "inbound":
				args = append(args, "--from=shop/checkout")
			case cmd.Name() == "graph":
				args = append(args, "-o=table")
			case cmd.Name() == "shift":
				args = append(args, "shop/orders", "--to=east=5%")
			case cmd.Name() == "invite":
				args = append(args, "anna-laptop")
			case cmd.Name() == "top":
				args = append(args, "--once")
			}
			expect(t, append(args, "--"+name+"=shop/orders"), true)
			expect(t, append(args, "--"+name+"=orders.shop"), true)
			expect(t, append(args, "--"+name+"=orders"), false)
		}
	})
}

// expect runs a command that has nobody to ask, and tells whether its arguments were right.
func expect(t *testing.T, args []string, right bool) {
	t.Helper()
	err := runNowhere(t, args...)
	if checked := args[0] == "check" && right; checked { // it reports that nobody answers
		err = nil
	} else if err == nil || !goesOn.MatchString(err.Error()) {
		t.Errorf("%v: the error does not say what to do: %v", args, err)
	}
	if wrong := err != nil && strings.Contains(err.Error(), "wrong use"); wrong == right {
		t.Errorf("%v: right: %v, but %v", args, right, err)
	}
}
