package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// entered is set in the environment of a process that is in namespaces of its own.
const entered = "ISTHMUS_TEST_IN_OWN_NAMESPACES"

// Own runs a test binary where it can make network namespaces: here, if this process may,
// and otherwise as a copy of itself in a user namespace of its own, in which it is root.
// Most systems let every user make those. It returns the exit code.
func Own(run func() int) int {
	n, err := newNamespace()
	if err == nil {
		n.file.Close()
		return run()
	}
	if !errors.Is(err, unix.EPERM) || os.Getenv(entered) != "" {
		return run() // the tests say what is wrong
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), entered+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := again.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "a user namespace of its own can't be had (%v); %s\n", err, advice)
		return run()
	}
	if err := again.Wait(); err != nil && again.ProcessState.ExitCode() < 0 {
		fmt.Fprintln(os.Stderr, "tests in a user namespace of their own:", err)
		return 1
	}
	return again.ProcessState.ExitCode()
}

// Need leaves a test out where a user may not have networks of their own, with the reason;
// some systems give rights in a user namespace to nobody. Whoever is root may have them, so
// there the test fails.
func Need(t testing.TB) {
	t.Helper()
	switch err := usable(); {
	case err == nil:
	case os.Getuid() == 0 && os.Getenv(entered) == "":
		t.Fatalf("no network of its own can be had: %v", err)
	default:
		t.Skipf("this user can't have networks of their own: %v", err)
	}
}

// usable tells why there can be no networks; nil where there can.
var usable = sync.OnceValue(func() error {
	n := New(1)
	_, err := n.Place(netip.AddrFrom4([4]byte{10, 77, 255, 1}))
	return errors.Join(err, n.Close())
})
