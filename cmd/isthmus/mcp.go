package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/isthmus-mesh/isthmus/internal/show"
)

// asked is a tool of the Model Context Protocol: a command that writes nothing, with some of its flags.
type asked struct {
	command []string // with what is always said
	about   string
	inputs  []input
}

// input is what a client may say of a tool.
type input struct {
	name, about string
	form        form
	required    bool
}

// form is where an input goes: a flag of its name, an argument, or standard input.
type form int

const (
	asFlag form = iota
	asSwitch
	asArgument
	asStdin
)

// tools are the tools by their names.
var tools = map[string]asked{
	"explain": {[]string{"explain"}, "Say why a call of one app to another is or is not let in and reaches an instance: the rule that decides, each route, and its faults.", []input{
		{name: "from", about: "the calling app, namespace/app-id; CLUSTER:namespace/app-id for one in another cluster", required: true},
		{name: "app", about: "the app that is called, namespace/app-id; without a namespace in the caller's", form: asArgument, required: true},
	}},
	"check": {[]string{"check"}, "Look for faults of the service, its links to other clusters, and of apps and their calls. Each has a fix.", []input{
		{name: "app", about: "look at this app alone, namespace/app-id"},
		{name: "peer", about: "look at this cluster alone"},
	}},
	"events": {[]string{"events"}, "Tell what has happened lately, the oldest first: who wrote which object, links lost and found, apps without instances, refusals.", []input{
		{name: "since", about: "how far to look back, such as 10m; the default is 1h"},
		{name: "warnings", about: "only warnings and errors", form: asSwitch},
	}},
	"plan": {[]string{"apply", "--dry-run", "--filename=-"}, "Say which lookups would end in another way if objects were applied. Nothing is written.", []input{
		{name: "objects", about: "objects of Isthmus in YAML, with --- between them", form: asStdin, required: true},
	}},
	"apps": {[]string{"apps"}, "List apps with their instances here and in other clusters.", []input{
		{name: "app", about: "one app, namespace/app-id", form: asArgument},
		{name: "namespace", about: "only apps of this namespace"},
		{name: "search", about: "only apps with this text in their name"},
	}},
	"top": {[]string{"top", "--once"}, "Show the calls of now by caller, callee and cluster: rate, success, latency, share, and failing since when.", []input{
		{name: "app", about: "calls by and to this app alone, namespace/app-id", form: asArgument},
		{name: "window", about: "how far back, 10s to 24h; the default is 1m"},
	}},
}

func newMCP(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve explain, check, events, plan, apps and top to an assistant, read-only",
		Long: `Serve the Model Context Protocol on standard input and output, for a program that starts this command,
such as an editor or an assistant. Its tools are explain, check, events, plan (apply --dry-run), apps
and top. None writes anything.

Each answer is what the command of that name prints as JSON. The service is asked by the flags and the
context of this command, and so with the same rights as if you had asked yourself. Names of apps,
addresses and events go to the program that asks: start it only where those may go.`,
		Example: `  isthmus mcp --context west
  {"mcpServers": {"isthmus": {"command": "isthmus", "args": ["mcp", "--context", "west"]}}}`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if options, err := c.options(cmd); err != nil {
			return err
		} else if err := options.Check(); err != nil {
			return misused(err)
		}
		server := mcp.NewServer(&mcp.Implementation{Name: "isthmus", Version: programVersion()}, nil)
		for name, tool := range tools {
			server.AddTool(&mcp.Tool{
				Name: name, Description: tool.about, InputSchema: tool.schema(),
				Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
			}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return tool.answer(ctx, serviceArguments(cmd), req.Params.Arguments), nil
			})
		}
		err := server.Run(cmd.Context(), &mcp.IOTransport{Reader: io.NopCloser(cmd.InOrStdin()), Writer: nopCloser{cmd.OutOrStdout()}})
		if cmd.Context().Err() != nil || errors.Is(err, io.EOF) {
			return nil // the client has gone
		}
		return err
	}
	return cmd
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// serviceArguments are the flags by which a command was told which service to ask, and as whom.
func serviceArguments(cmd *cobra.Command) (all []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, marked := f.Annotations[reachesService]; marked {
			all = append(all, "--"+f.Name+"="+f.Value.String())
		}
	})
	return all
}

// schema is the JSON Schema of a tool's inputs.
func (t asked) schema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, in := range t.inputs {
		kind := "string"
		if in.form == asSwitch {
			kind = "boolean"
		}
		properties[in.name] = map[string]any{"type": kind, "description": in.about}
		if in.required {
			required = append(required, in.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// answer runs the command of a tool. What it says besides the answer follows that.
func (t asked) answer(ctx context.Context, service []string, inputs json.RawMessage) *mcp.CallToolResult {
	args, stdin, err := t.arguments(inputs)
	var out, said bytes.Buffer
	if err == nil {
		root := newRoot()
		plugin(root, os.Args[0])
		root.SetArgs(slices.Concat(t.command[:1], service, t.command[1:], args))
		root.SetIn(strings.NewReader(stdin))
		root.SetOut(&out)
		root.SetErr(&said)
		err = root.ExecuteContext(ctx)
	}
	if err != nil && !errors.Is(err, errReported) && !errors.Is(err, errFaults) {
		fmt.Fprintln(&said, show.Lines(err))
	}
	result := &mcp.CallToolResult{IsError: err != nil && out.Len() == 0}
	for _, text := range []string{out.String(), said.String()} {
		if text = strings.TrimSpace(text); text != "" {
			result.Content = append(result.Content, &mcp.TextContent{Text: text})
		}
	}
	return result
}

// arguments are those of the command, which can't be taken for other flags.
func (t asked) arguments(inputs json.RawMessage) (args []string, stdin string, err error) {
	said := map[string]any{}
	if len(inputs) > 0 {
		if err := json.Unmarshal(inputs, &said); err != nil {
			return nil, "", fmt.Errorf("arguments: %w; write an object", err)
		}
	}
	args = []string{"--output=json"}
	var last []string
	for _, in := range t.inputs {
		value, there := said[in.name]
		delete(said, in.name)
		text, isText := value.(string)
		on, isSwitch := value.(bool)
		switch {
		case !there && in.required:
			return nil, "", fmt.Errorf("%s is missing: %s", in.name, in.about)
		case !there || isText && text == "" && !in.required:
		case in.form == asSwitch && isSwitch:
			args = append(args, fmt.Sprintf("--%s=%t", in.name, on))
		case !isText || in.form == asSwitch:
			return nil, "", fmt.Errorf("%s is of another type; want %s", in.name, in.about)
		case in.form == asFlag:
			args = append(args, "--"+in.name+"="+text)
		case in.form == asStdin:
			stdin = text
		default:
			last = append(last, text)
		}
	}
	for name := range said {
		return nil, "", fmt.Errorf("unknown argument %q", name)
	}
	return append(append(args, "--"), last...), stdin, nil
}
