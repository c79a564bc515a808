package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Role is what a program does in a process that it has started of itself.
type Role func(ctx context.Context, argument []byte) error

// Result is a role that works something out and returns it to [Separately].
func Result[A, R any](work func(context.Context, A) (R, error)) Role {
	return func(ctx context.Context, text []byte) error {
		var argument A
		if err := json.Unmarshal(text, &argument); err != nil {
			return fmt.Errorf("read -argument: %w", err)
		}
		result, err := work(ctx, argument)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	}
}

// Separately has a role work something out in a process of its own, so that the memory is
// its own.
func Separately[R any](ctx context.Context, role string, argument any) (result R, err error) {
	args, err := Arguments(role, argument)
	if err != nil {
		return result, err
	}
	self, err := os.Executable()
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return result, fmt.Errorf("%v: %w", args, err)
	}
	return result, json.Unmarshal(out, &result)
}

// Arguments are those that make this program a role.
func Arguments(role string, argument any) ([]string, error) {
	text, err := json.Marshal(argument)
	return []string{"-role", role, "-argument", string(text), "-profile", profiles}, err
}

// Child is a role in a process of its own that answers questions, one at a time.
type Child struct {
	cmd       *exec.Cmd
	stdin     io.WriteCloser
	questions *json.Encoder
	answers   *json.Decoder
}

// StartChild starts a role that calls [Answer].
func StartChild(ctx context.Context, role string, argument any) (*Child, error) {
	args, err := Arguments(role, argument)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &Child{cmd, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}, cmd.Start()
}

// Method answers a question; see [Typed].
type Method func(argument json.RawMessage) (any, error)

// Typed is a method by a function of an argument.
func Typed[A, R any](f func(A) (R, error)) Method {
	return func(text json.RawMessage) (any, error) {
		var argument A
		if err := json.Unmarshal(text, &argument); err != nil {
			return nil, err
		}
		return f(argument)
	}
}

// Answer answers the program's questions until the program has no more.
func Answer(methods map[string]Method) error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var question struct {
			Method   string
			Argument json.RawMessage
		}
		if err := in.Decode(&question); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		result, err := methods[question.Method](question.Argument)
		failed := ""
		if err != nil {
			failed = err.Error()
		}
		if err := out.Encode(map[string]any{"Result": result, "Failed": failed}); err != nil {
			return err
		}
	}
}

// None is an argument, or an answer, that says nothing.
type None struct{}

// Ask has a child answer by one of its methods.
func Ask[T any](c *Child, method string, argument any) (T, error) {
	var answer struct {
		Result T
		Failed string
	}
	err := c.questions.Encode(map[string]any{"Method": method, "Argument": argument})
	if err == nil {
		err = c.answers.Decode(&answer)
	}
	if err == nil && answer.Failed != "" {
		err = errors.New(answer.Failed)
	}
	if err != nil {
		err = fmt.Errorf("ask process %d (%s): %w", c.PID(), method, err)
	}
	return answer.Result, err
}

// PID is the process's.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Stop ends the process by the end of its input.
func (c *Child) Stop() error { return errors.Join(c.stdin.Close(), c.cmd.Wait()) }
