package sandbox

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helper is this test binary run as a process of a sandbox's.
func helper(t *testing.T, env ...string) Command {
	t.Helper()
	return Command{
		Name: "helper", Path: os.Args[0], Args: []string{"-test.run=^TestHelper$", "-test.v"}, LogDir: t.TempDir(),
		Env: append([]string{"SANDBOX_HELPER=1"}, env...),
	}
}

// TestHelper is no test: it is what the processes of other tests run.
func TestHelper(t *testing.T) {
	if os.Getenv("SANDBOX_HELPER") == "" {
		t.Skip("not run as a process of a sandbox's")
	}
	println("helper is up, SECRET=" + os.Getenv("SECRET"))
	if code := os.Getenv("HELPER_EXIT"); code != "" {
		println("helper gives up")
		n, _ := strconv.Atoi(code)
		os.Exit(n)
	}
	if child := os.Getenv("HELPER_CHILD_PID"); child != "" {
		p, err := Start(Command{Name: "child", Path: "/bin/sleep", Args: []string{"600"}, LogDir: filepath.Dir(child)})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(child, []byte(strconv.Itoa(p.PID())+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if file := os.Getenv("HELPER_PORT"); file != "" {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(port)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if address := os.Getenv("HELPER_LISTEN"); address != "" {
		if err := http.ListenAndServe(address, http.NotFoundHandler()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Minute)
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestAProcessStopsAndStartsAgain(t *testing.T) {
	p := start(t, helper(t))
	first := p.PID()
	if err := p.Start(); err == nil {
		t.Error("a running process was started again")
	}
	if err := p.Stop(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(within(t, patience)); err != nil {
		t.Errorf("stop what has ended: %v", err)
	}
	if err := p.Restart(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	if p.PID() == first {
		t.Error("the process has the same id after a restart")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID(), 0); err != syscall.ESRCH {
		t.Errorf("after Kill the process is still there: %v", err)
	}
}

func TestAProcessThatNobodyToldToEndIsNamed(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(*Process) error
		want string // in the error; empty: none
	}{
		"killed from outside": {func(p *Process) error { return p.Signal(syscall.SIGKILL) }, "helper has ended"},
		"killed":              {(*Process).Kill, ""},
		"stopped":             {func(p *Process) error { return p.Stop(within(t, patience)) }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			p := start(t, helper(t))
			if err := p.Unexpected(); err != nil {
				t.Errorf("while it runs: %v", err)
			}
			if err := c.end(p); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			err := p.Unexpected()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("after that: %v, want %q", err, c.want)
			}
		})
	}
}

func TestAProcessInheritsLittle(t *testing.T) {
	t.Setenv("SECRET", "of the parent")
	p := start(t, helper(t, "HELPER_EXIT=0"))
	<-p.Done()
	if log := p.Tail(10); !strings.Contains(log, "SECRET=\n") {
		t.Errorf("the process saw a variable of its parent's:\n%s", log)
	}
}

func TestAProcessThatEndsBeforeItIsReadySaysWhy(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	c := helper(t, "HELPER_EXIT=3")
	c.ReadyURL = "http://" + loopback(port)
	err = start(t, c).WaitReady(within(t, patience))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "helper gives up") {
		t.Errorf("WaitReady: %v, want the exit status and the end of the log", err)
	}
}

func TestAProcessThatIsNeverReady(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	c := helper(t, "HELPER_LISTEN="+loopback(port)) // answers 404
	c.ReadyURL = "http://" + loopback(port)
	err = start(t, c).WaitReady(within(t, 300*time.Millisecond))
	if err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("WaitReady: %v, want that it is not ready", err)
	}
}

func TestAProcessEndsWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a process with its parent")
	}
	file := filepath.Join(t.TempDir(), "pid")
	parent := start(t, helper(t, "HELPER_CHILD_PID="+file))
	child := numberIn(t, file, "the parent started no child in a minute")
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, patience)
	for running(child) {
		if ctx.Err() != nil {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("the child outlived its parent by a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// numberIn waits for a process to write a number, and the end of the line.
func numberIn(t *testing.T, file, otherwise string) int {
	t.Helper()
	for ctx := within(t, patience); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		line, whole := strings.CutSuffix(string(text), "\n")
		if n, err := strconv.Atoi(line); whole && err == nil {
			return n
		}
	}
	t.Fatal(otherwise)
	return 0
}

// running tells whether a process is there and no zombie: in a container without an
// init nobody may reap it.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestBinary(t *testing.T) {
	t.Setenv("ISTHMUS_TEST_PROGRAMS", "")
	t.Run("named by the environment", func(t *testing.T) {
		sh, err := exec.LookPath("sh")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("ISTHMUS_DAPRD", sh)
		if got, err := Binary("daprd"); err != nil || got != sh {
			t.Errorf("Binary: %q, %v, want %q", got, err, sh)
		}
	})
	t.Run("named by the environment and missing", func(t *testing.T) {
		t.Setenv("ISTHMUS_DAPRD", "/nowhere")
		if _, err := Binary("daprd"); err == nil || !strings.Contains(err.Error(), "ISTHMUS_DAPRD=/nowhere") {
			t.Errorf("Binary: %v, want an error with the variable", err)
		}
	})
	t.Run("not built", func(t *testing.T) {
		t.Chdir(t.TempDir())
		for name, target := range map[string]string{"sentry": "make deps-demo", "etcd": "make deps", "kubelet": "make deps-install"} {
			if _, err := Binary(name); err == nil || !strings.HasSuffix(err.Error(), target) {
				t.Errorf("Binary: %v, want an error that says %s", err, target)
			}
		}
	})
	t.Run("a server whose name has a dash", func(t *testing.T) {
		sh, err := exec.LookPath("sh")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("ISTHMUS_KUBE_APISERVER", sh)
		if got, err := Binary("kube-apiserver"); err != nil || got != sh {
			t.Errorf("Binary: %q, %v, want %q", got, err, sh)
		}
	})
	t.Run("a server on the PATH", func(t *testing.T) {
		t.Chdir(t.TempDir())
		bin := t.TempDir()
		t.Setenv("PATH", bin)
		for _, name := range []string{"redis-server", "daprd"} {
			if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := Binary("redis-server"); err != nil || got != filepath.Join(bin, "redis-server") {
			t.Errorf("Binary: %q, %v, want the one on the PATH", got, err)
		}
		if got, err := Binary("daprd"); !errors.Is(err, ErrNoBinary) {
			t.Errorf("Binary: %q, %v; a daprd on the PATH has no Isthmus in it", got, err)
		}
	})
	t.Run("a browser by another name", func(t *testing.T) {
		t.Chdir(t.TempDir())
		bin := t.TempDir()
		t.Setenv("PATH", bin)
		want := filepath.Join(bin, "google-chrome")
		if err := os.WriteFile(want, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := Binary("chromium"); err != nil || got != want {
			t.Errorf("Binary: %q, %v, want %s, which is on the PATH", got, err, want)
		}
	})
	t.Run("in a repository", func(t *testing.T) {
		root := t.TempDir()
		for path, mode := range map[string]os.FileMode{"go.mod": 0o644, "bin/isthmus": 0o755, "a/b/c": 0o644} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, path), nil, mode); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(filepath.Join(root, "a/b"))
		if got, err := Binary("isthmus"); err != nil || !strings.HasSuffix(got, "/bin/isthmus") {
			t.Errorf("Binary: %q, %v, want the repository's bin/isthmus", got, err)
		}
	})
}

// A port that nobody listens on just now may be that of a server which is started again.
func TestAPortIsNotGivenOutWhileAnotherProcessHasIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	p := start(t, helper(t, "HELPER_PORT="+file))
	port := numberIn(t, file, "the process was given no port in a minute")
	if !free(port) {
		t.Fatalf("port %d is taken", port)
	}
	if keep(port) {
		t.Errorf("port %d would be given out, and another process has it", port)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if !keep(port) {
		t.Errorf("port %d is kept for a process that has ended", port)
	}
}

func TestFreePortsAreFreeAndDistinct(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || !free(port) {
			t.Fatalf("port %d was given out twice or is taken", port)
		}
		seen[port] = true
	}
}
