package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Family is a process and its children, such as the workers of nginx.
func Family(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, Family(child)...)
			}
		}
	}
	return all
}

// CPU is the CPU time, user and system, that a process and its children have had.
func CPU(pid int) (time.Duration, error) { return scheduled(Family(pid)) }

// ChildrenCPU is the CPU time that the children of this process, and theirs, have had.
func ChildrenCPU() (time.Duration, error) { return scheduled(Family(os.Getpid())[1:]) }

// scheduled is the scheduler's own count of the CPU time of processes: that of /proc/<pid>/stat is in
// 10 ms.
func scheduled(processes []int) (total time.Duration, err error) {
	for _, p := range processes {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p))
		if err != nil || len(threads) == 0 {
			return 0, fmt.Errorf("process %d is gone, or this kernel keeps no schedstat", p)
		}
		for _, t := range threads {
			b, err := os.ReadFile(t)
			if err != nil {
				return 0, fmt.Errorf("read CPU time: %w", err)
			}
			var ns int64
			if _, err := fmt.Sscan(string(b), &ns); err != nil {
				return 0, fmt.Errorf("read %s: %w", t, err)
			}
			total += time.Duration(ns)
		}
	}
	return total, nil
}

// Spent is the CPU time that a process and its children have had for something.
func Spent(pid int, do func() error) (time.Duration, error) {
	before, err := CPU(pid)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := CPU(pid)
	return after - before, err
}

// OwnCPU is the CPU time that this process has had, without its children.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for bad arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Holds is the memory (proportional set size, in bytes) and the number of descriptors of a
// process and its children. The kernel's memory for sockets is not in it.
func Holds(pid int) (memory int64, files int, err error) {
	for _, p := range Family(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
		if err != nil {
			return 0, 0, err
		}
		_, pss, _ := strings.Cut(string(text), "\nPss:")
		var kib int64
		if _, err := fmt.Sscan(pss, &kib); err != nil {
			return 0, 0, fmt.Errorf("read the memory of process %d: %w", p, err)
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p))
		if err != nil {
			return 0, 0, err
		}
		memory, files = memory+kib<<10, files+len(open)
	}
	return memory, files, nil
}
