package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Command says how to run a process.
type Command struct {
	Name     string // in messages, and of the log file
	Path     string
	Args     []string
	Env      []string // all of it: nothing is inherited but PATH, HOME and TMPDIR
	LogDir   string
	ReadyURL string // answers 2xx when the process is ready; empty: it is at once

	// Place is the network that the process is in; nil: the one that this process is in.
	Place Place

	// ResolvConf is a file that the process has for /etc/resolv.conf, so that it asks DNS
	// servers of its own; empty: it has the system's. It is there on Linux only, and takes
	// the right to mount, as root has in a user namespace.
	ResolvConf string

	// Secrets is a directory that the process has for /var/run/secrets, as a pod has what
	// Kubernetes mounts there; empty: it has the system's. Nothing else is in its /var/run.
	// It takes what ResolvConf does.
	Secrets string

	// UID and GID are the user that the process runs as, where it is not 0 and the caller
	// is root: some servers refuse to run as root.
	UID, GID uint32
}

// Process is a running or ended process. Its output goes to a log file that is
// appended to when it is started again. On Linux it ends when this process ends,
// however that comes about.
type Process struct {
	command Command
	client  *http.Client // asks whether it is ready

	mu  sync.Mutex
	run *run
}

// run is one life of a process.
type run struct {
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended
	err   error         // how it ended; read after done
	meant atomic.Bool   // it was told to end by Stop or Kill
}

// Start starts a process.
func Start(c Command) (*Process, error) {
	p := &Process{command: c, client: newClient(c.Place)}
	return p, p.Start()
}

// Start starts the process again after it has ended, with the same command.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !ended(p.run.done) {
		return fmt.Errorf("start %s: it is running already", p.command.Name)
	}
	return p.start()
}

// start starts another life; with mu held.
func (p *Process) start() error {
	out, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.command.Name, err)
	}
	cmd := exec.Command(p.command.Path, p.command.Args...)
	if p.command.ResolvConf != "" || p.command.Secrets != "" {
		cmd = exec.Command("unshare", p.command.withMounts()...)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(inherited(), p.command.Env...)
	cmd.SysProcAttr = ownGroup() // Ctrl-C in a terminal must reach us alone; we decide who stops when
	if p.command.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: p.command.UID, Gid: p.command.GID}
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go r.live(p.command.Place, out, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.command.Name, err)
	}
	p.run = r
	return nil
}

// live starts the process and stays on one thread until it has ended: Linux sends
// the signal for a parent's death when the thread that started the child ends.
func (r *run) live(place Place, out *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer out.Close()
	defer close(r.done)
	err := in(place, r.cmd.Start)
	started <- err
	if err == nil {
		r.err = r.cmd.Wait()
	}
}

// mounts has a program run with what [Command] mounts, as the same process. The file behind
// /etc/resolv.conf may itself be in /var/run.
const mounts = `set -e
resolv=$1 secrets=$2
shift 2
if [ "$secrets" ]; then
	file=$(readlink -f /etc/resolv.conf)
	mount -t tmpfs tmpfs "$(readlink -f /var/run)"
	mkdir /var/run/secrets
	mount --bind "$secrets" /var/run/secrets
	[ -e "$file" ] || { mkdir -p "$(dirname "$file")" && : > "$file"; }
fi
if [ "$resolv" ]; then
	mount --bind "$resolv" /etc/resolv.conf
fi
exec "$@"`

// withMounts are the arguments of unshare(1) that run the command.
func (c *Command) withMounts() []string {
	return append([]string{"--mount", "--propagation", "private", "sh", "-c", mounts, "sh", c.ResolvConf, c.Secrets, c.Path}, c.Args...)
}

func inherited() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Use has the process run another program from its next life on, such as another release.
func (p *Process) Use(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command.Path = path
}

// current is the latest life of the process.
func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// Name is the process's name in messages.
func (p *Process) Name() string { return p.command.Name }

// PID is the id of the process.
func (p *Process) PID() int { return p.current().cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.current().done }

// LogFile is where the process's output goes.
func (p *Process) LogFile() string { return filepath.Join(p.command.LogDir, p.command.Name+".log") }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error {
	if err := p.current().cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s with %s: %w", p.command.Name, s, err)
	}
	return nil
}

// Stop asks the process to end and waits until it has. When ctx ends first, the
// process is killed and Stop returns an error with the end of its log.
func (p *Process) Stop(ctx context.Context) error {
	r := p.current()
	r.meant.Store(true)
	if err := r.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		<-r.done
		return nil
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		_ = r.cmd.Process.Signal(syscall.SIGQUIT) // a Go program then says where it hangs
		select {
		case <-r.done:
		case <-time.After(time.Second):
			_ = p.Kill()
		}
		return fmt.Errorf("stop %s: it did not end by itself (%w) and was killed; its log ends:\n%s", p.command.Name, ctx.Err(), p.Tail(300))
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() error {
	r := p.current()
	r.meant.Store(true)
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.command.Name, err)
	}
	<-r.done
	return nil
}

// Unexpected tells that the process has ended without Stop or Kill, and how; it is nil
// otherwise.
func (p *Process) Unexpected() error {
	r := p.current()
	if !ended(r.done) || r.meant.Load() {
		return nil
	}
	how := "with exit code 0"
	if r.err != nil {
		how = r.err.Error()
	}
	return fmt.Errorf("%s has ended by itself or by somebody else's hand (%s); its log is %s", p.command.Name, how, p.LogFile())
}

// Restart starts the process again, after a Kill or Stop, and waits until it is
// ready.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Start(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

// Replace asks the process to end and starts it again at once, beside it. It returns once the
// new one is ready and the old one has ended by itself.
func (p *Process) Replace(ctx context.Context) error {
	old := p.current()
	old.meant.Store(true)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	p.mu.Lock()
	err := p.start()
	p.mu.Unlock()
	if err == nil {
		err = p.WaitReady(ctx)
	}
	select {
	case <-old.done:
		return errors.Join(err, old.err)
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("replace %s: the old process has not ended: %w", p.command.Name, ctx.Err()), old.cmd.Process.Kill())
	}
}

// WaitReady waits until the process is ready. It fails when ctx or the process ends.
func (p *Process) WaitReady(ctx context.Context) error {
	r := p.current()
	defer p.client.CloseIdleConnections()
	for p.command.ReadyURL != "" && !answers(ctx, p.client, p.command.ReadyURL) {
		select {
		case <-r.done:
			return fmt.Errorf("%s ended before it was ready (%v); its log ends:\n%s", p.command.Name, r.err, p.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w); its log ends:\n%s", p.command.Name, ctx.Err(), p.Tail(20))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// answers tells whether url answers 2xx.
func answers(ctx context.Context, client *http.Client, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode/100 == 2
}

// Tail is the last lines of the process's log.
func (p *Process) Tail(lines int) string {
	text, err := os.ReadFile(p.LogFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
