package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// errNoNamespace means that the program runs in the machine's own network.
var errNoNamespace = errors.New("no network namespace can be had")

// inNamespace runs the program again in a network namespace of its own.
func inNamespace(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"-alone"}, os.Args[1:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	group := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: id, GidMappings: group, Pdeathsig: syscall.SIGTERM,
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(errNoNamespace, err)
	}
	return cmd.Wait()
}

// raiseLoopback brings up the namespace's only interface, with multicast.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_MULTICAST)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("bring the loopback interface up: %w", err)
	}
	return nil
}
