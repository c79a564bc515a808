package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a network of the kernel's that this process alone holds: it has no name,
// so it is gone once nobody is in it and its file is closed, which the end of this process
// does as well.
type namespace struct{ file *os.File }

// here is the file of the network namespace that the current thread is in.
const here = "/proc/thread-self/ns/net"

// advice says how the rights are had that this takes.
const advice = "run as root, or in namespaces of your own: unshare --user --map-root-user --net COMMAND"

// newNamespace makes an empty network.
func newNamespace() (n *namespace, err error) {
	leave := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w; %s", err, advice)
		}
		return nil
	}
	err = away(leave, func() error {
		file, err := os.Open(here)
		n = &namespace{file}
		return err
	})
	return n, err
}

// do calls f on a thread that is in the namespace. It is the thread that calls do: so f may
// start a process that is to end with that thread.
func (n *namespace) do(f func() error) error {
	leave := func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w; %s", err, advice)
		}
		return nil
	}
	return away(leave, f)
}

// away has the thread leave its namespace, calls f and brings the thread back.
func away(leave, f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open(here)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find the own network namespace: %w", err)
	}
	defer home.Close()
	if err := leave(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays with this goroutine, so that nobody else runs in the wrong network.
		return errors.Join(err, fmt.Errorf("return from a network namespace: %w; %s", back, advice))
	}
	runtime.UnlockOSThread()
	return err
}
