package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
)

// mcpAsk is a client of "isthmus mcp" by the SDK, which starts the command in the script's environment:
// mcp FLAGS... -- TOOL JSON. Without a tool it lists them. What the tool answers is written into the
// file "answer", and an error must be wanted by "!".
func mcpAsk(ts *testscript.TestScript, neg bool, args []string) {
	dash := slices.Index(args, "--")
	path, err := exec.LookPath("isthmus")
	ts.Check(err)
	command := exec.Command(path, append([]string{"mcp"}, args[:dash]...)...)
	command.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "ISTHMUS_SERVER", "ISTHMUS_SOCKET", "WORK"} {
		command.Env = append(command.Env, name+"="+ts.Getenv(name))
	}
	var said bytes.Buffer
	command.Stderr = &said
	client := mcp.NewClient(&mcp.Implementation{Name: "script"}, nil)
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: command}, nil)
	if err != nil {
		ts.Fatalf("connect: %v, %s", err, said.String())
	}
	defer session.Close()
	var answer strings.Builder
	failed := false
	if args = args[dash+1:]; len(args) == 0 {
		list, err := session.ListTools(context.Background(), nil)
		ts.Check(err)
		for _, tool := range list.Tools {
			if !tool.Annotations.ReadOnlyHint {
				ts.Fatalf("%s is not said to be read-only", tool.Name)
			}
			answer.WriteString(tool.Name + "\n")
		}
	} else {
		var inputs map[string]any
		ts.Check(json.Unmarshal([]byte(args[1]), &inputs))
		result, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: args[0], Arguments: inputs})
		ts.Check(err)
		failed = result.IsError
		for _, part := range result.Content {
			answer.WriteString(part.(*mcp.TextContent).Text + "\n")
		}
	}
	if failed != neg {
		ts.Fatalf("%v: error: %v\n%s", args, failed, answer.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs("answer"), []byte(answer.String()), 0o600))
}

// TestTheToolsAreCommandsThatWriteNothing holds each tool to a command and to flags that it has.
func TestTheToolsAreCommandsThatWriteNothing(t *testing.T) {
	for name, tool := range tools {
		cmd, _, err := newRoot().Find(tool.command)
		if err != nil || cmd.Name() != tool.command[0] {
			t.Errorf("%s runs %v: %v", name, tool.command, err)
			continue
		}
		if writes := []string{"apply", "delete", "edit", "link"}; slices.Contains(writes, cmd.Name()) && !slices.Contains(tool.command, "--dry-run") {
			t.Errorf("%s writes", name)
		}
		for _, in := range tool.inputs {
			if (in.form == asFlag || in.form == asSwitch) && cmd.Flag(in.name) == nil {
				t.Errorf("%s: %s has no flag --%s", name, cmd.CommandPath(), in.name)
			}
		}
	}
	for inputs, want := range map[string]string{
		`{"app": "--yes"}`:                       "from is missing",
		`{"from": "shop/a", "app": "b", "x": 1}`: `unknown argument "x"`,
		`{"from": true, "app": "b"}`:             "from is of another type",
		`[]`:                                     "write an object",
		`{"from": "--insecure", "app": "--insecure"}`: "",
	} {
		args, _, err := tools["explain"].arguments(json.RawMessage(inputs))
		if want == "" {
			if got := filepath.Join(args...); err != nil || got != "--output=json/--from=--insecure/--/--insecure" {
				t.Errorf("%s: %v, %v", inputs, args, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", inputs, err, want)
		}
	}
}
