// Package contender starts the servers that a benchmark compares: ours and those of others,
// each by a program, its arguments and a configuration file.
package contender

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Server says how to start a server. In its arguments and its configuration PORT, DIR and
// CONFIG are filled in: its port, a directory of its own, and the file with its
// configuration.
type Server struct {
	Name    string // in the table
	Program string // to be found by its name, or a path
	Args    []string
	Config  string
	Fill    []string // more to fill in: a name, then its value
	UID     uint32   // the user that it runs as, where it is not 0
}

// Running is a server that runs on 127.0.0.1.
type Running struct {
	*sandbox.Process
	Name string
	Port int
	Addr string // host:port
}

// Start starts a server with its files below dir, and waits until it answers. It fails
// with sandbox.ErrNoBinary if this machine has no such program.
func (s Server) Start(ctx context.Context, dir string, answers func(*Running) error) (*Running, error) {
	path, err := find(s.Program)
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "server-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "server.conf")
	fill := strings.NewReplacer(append([]string{"PORT", fmt.Sprint(port), "DIR", dir, "CONFIG", config}, s.Fill...)...)
	if err := os.WriteFile(config, []byte(fill.Replace(s.Config)), 0o644); err != nil {
		return nil, err
	}
	var args []string
	for _, a := range s.Args {
		args = append(args, fill.Replace(a))
	}
	process, err := sandbox.Start(sandbox.Command{Name: "server", Path: path, Args: args, LogDir: dir, UID: s.UID, GID: s.UID})
	if err != nil {
		return nil, err
	}
	r := &Running{process, s.Name, port, fmt.Sprintf("127.0.0.1:%d", port)}
	return r, r.Await(ctx, answers)
}

// Await waits until a server answers; one that does not is killed.
func (r *Running) Await(ctx context.Context, answers func(*Running) error) error {
	ended := error(nil)
	err := measure.Await(ctx, r.Name+" answers", 20*time.Millisecond, func() error {
		if ended = r.Unexpected(); ended != nil {
			return nil
		}
		return answers(r)
	})
	if err = errors.Join(err, ended); err != nil {
		return fmt.Errorf("%w; its log ends:\n%s", errors.Join(err, r.Kill()), r.Tail(10))
	}
	return nil
}

// find looks a program up where systems put servers, too.
func find(program string) (string, error) {
	if filepath.IsAbs(program) {
		return program, nil
	}
	path, err := sandbox.Binary(program)
	if err == nil {
		return path, nil
	}
	for _, elsewhere := range []string{program, "/usr/sbin/" + program} {
		if path, err := exec.LookPath(elsewhere); err == nil {
			return path, nil
		}
	}
	return "", err
}

// StartAll starts those servers whose name has one of only in it, with commas between. It
// says which ones this machine does not have.
func StartAll(ctx context.Context, dir, only string, all []Server, answers func(*Running) error) (running []*Running, err error) {
	for _, s := range all {
		if !Wanted(s.Name, only) {
			continue
		}
		r, err := s.Start(ctx, dir, answers)
		if errors.Is(err, sandbox.ErrNoBinary) {
			measure.Progress("left out: %s: %v", s.Name, err)
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", s.Name, err), StopAll(running))
		}
		running = append(running, r)
	}
	return running, nil
}

// Wanted tells whether a name has one of only in it, with commas between.
func Wanted(name, only string) bool {
	for part := range strings.SplitSeq(only, ",") {
		if strings.Contains(strings.ToLower(name), strings.ToLower(part)) {
			return true
		}
	}
	return false
}

// StopAll stops servers.
func StopAll(running []*Running) error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.Patience)
	defer cancel()
	var errs []error
	for _, r := range running {
		errs = append(errs, r.Stop(ctx))
	}
	return errors.Join(errs...)
}
