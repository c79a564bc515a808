package simulation

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// diskEnv has a process of the tests mount a small disk there, for itself alone.
const diskEnv = "ISTHMUS_SIMULATION_DISK"

// TestStoresOnAFullDisk kills the writers of stores, on a disk of 2 MiB that is full every other moment. The
// properties are those of TestStores.
func TestStoresOnAFullDisk(t *testing.T) {
	if disk := os.Getenv(diskEnv); disk != "" {
		onFullDisk(t, disk)
		return
	}
	again := exec.Command(os.Args[0], "-test.v", "-test.run=^TestStoresOnAFullDisk$")
	again.Env = append(os.Environ(), diskEnv+"="+t.TempDir())
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := again.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
		t.Skipf("a disk of its own takes root or a user namespace: %v", err)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func onFullDisk(t *testing.T, disk string) {
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("simulation", disk, "tmpfs", 0, "size=2m"),
	); err != nil {
		t.Fatal(err)
	}
	for name := range storeKinds {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(disk, name)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			done, filled := make(chan struct{}), make(chan int)
			go func() { filled <- fill(filepath.Join(disk, "ballast"), done) }()
			killWriters(t, name, path)
			close(done)
			if n := <-filled; n == 0 {
				t.Error("the disk was never full")
			}
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
		})
	}
}

// fill fills a disk again and again, and makes room. It returns how often it was full.
func fill(ballast string, done <-chan struct{}) (full int) {
	defer os.Remove(ballast)
	for {
		if errors.Is(os.WriteFile(ballast, make([]byte, 4<<20), 0o600), syscall.ENOSPC) {
			full++
		}
		for range 2 {
			select {
			case <-done:
				return full
			case <-time.After(40 * time.Millisecond):
			}
			_ = os.Remove(ballast) // it is gone the second time
		}
	}
}
