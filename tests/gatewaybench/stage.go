package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The names that the proxies route by.
const (
	echoHost = "echo.bench.east.isthmus.internal" // TLS, echoes blocks of 1 KiB
	bulkHost = "bulk.bench.east.isthmus.internal" // sends as many bytes as it is told to
)

// ordinaryUser is who some proxies run as, and the next number another: what pipes a
// user may have is counted over all his processes.
const ordinaryUser = 65533

// besideIdle is how many idle connections are open beside what is measured, where a
// candidate says so.
const besideIdle = 500

// stage has the apps behind the proxies, and starts the proxies.
type stage struct {
	dir        string
	self       string // this program, where every user may execute it
	echo, bulk string // addresses of the apps
	running    []*exec.Cmd
}

func newStage(dir string) (*stage, error) {
	s := &stage{dir: dir, self: filepath.Join(dir, "gatewaybench")}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if err := copySelf(s.self); err != nil {
		return nil, err
	}
	out, _, err := s.startSelf(0, "-role", "apps")
	if err != nil {
		return nil, err
	}
	s.echo, s.bulk, _ = strings.Cut(out, " ")
	return s, nil
}

func copySelf(to string) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// startSelf starts this program in a role, as a user, and returns the line in which it
// says where it listens.
func (s *stage) startSelf(uid int, args ...string) (line string, pid int, err error) {
	cmd := exec.Command(s.self, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, err
	}
	if err := s.start(cmd, uid); err != nil {
		return "", 0, err
	}
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", 0, fmt.Errorf("%s did not start: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid, nil
}

// start starts a program that ends with this one at the latest.
func (s *stage) start(cmd *exec.Cmd, uid int) error {
	cmd.Stderr = os.Stderr
	cmd.Dir = s.dir
	cmd.SysProcAttr = bound()
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running = append(s.running, cmd)
	return nil
}

// stop ends what was started, the last first, and waits for it.
func (s *stage) stop() {
	for i := len(s.running) - 1; i >= 0; i-- {
		cmd := s.running[i]
		cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		killer.Stop()
	}
}

// find looks a program up where Debian puts servers, too.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

// freePort is one that nothing listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// awaitPort waits until something listens.
func awaitPort(addr string) error {
	for range 200 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("nothing listens on " + addr + " after 4 s")
}
