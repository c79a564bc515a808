package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Server says how to start a server. In its arguments and its configuration PORT, DIR and CONFIG
// are filled in: its port, a directory of its own, and the file with its configuration.
type Server struct {
	Name    string // in the table
	Program string // in the table of sandbox/programs, or a path
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

// Servers starts those servers whose name has one of only in it, and waits until they answer. It
// says which ones this machine does not have.
func (b *B) Servers(only string, all []Server, answers func(*Running)) (running []*Running) {
	for _, s := range all {
		path := s.Program
		if !Wanted(s.Name, only) {
			continue
		}
		if !filepath.IsAbs(path) {
			var err error
			if path, err = sandbox.Binary(path); errors.Is(err, sandbox.ErrNoBinary) {
				Progress("left out: %s: %v", s.Name, err)
				continue
			}
			Check(err)
		}
		running = append(running, s.start(b, path))
		running[len(running)-1].Await(b, answers)
	}
	return running
}

func (s *Server) start(b *B, path string) *Running {
	port, dir := Must(sandbox.FreePort()), Must(os.MkdirTemp(b.Dir(), "server-"))
	Check(os.Chmod(dir, 0o755))
	config := filepath.Join(dir, "server.conf")
	fill := strings.NewReplacer(append([]string{"PORT", fmt.Sprint(port), "DIR", dir, "CONFIG", config}, s.Fill...)...)
	Check(os.WriteFile(config, []byte(fill.Replace(s.Config)), 0o644))
	var args []string
	for _, a := range s.Args {
		args = append(args, fill.Replace(a))
	}
	process := Must(sandbox.Start(sandbox.Command{Name: "server", Path: path, Args: args, LogDir: dir, UID: s.UID, GID: s.UID}))
	b.Cleanup(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		return process.Stop(ctx)
	})
	return &Running{process, s.Name, port, fmt.Sprintf("127.0.0.1:%d", port)}
}

// Await waits until a server answers.
func (r *Running) Await(b *B, answers func(*Running)) {
	ended := error(nil)
	err := Try(func() {
		b.Await(r.Name+" answers", 20*time.Millisecond, func() {
			if ended = r.Unexpected(); ended == nil {
				answers(r)
			}
		})
	})
	err = errors.Join(err, ended)
	Assert(err == nil, "%w; its log ends:\n%s", err, r.Tail(10))
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
