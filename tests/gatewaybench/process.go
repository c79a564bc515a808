package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// family is a process and its children, such as the workers of nginx.
func family(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, family(child)...)
			}
		}
	}
	return all
}

// cpuSeconds is the CPU time, user and system, that a process and its children have
// had. The scheduler's own count is used: that of /proc/<pid>/stat is in 10 ms.
func cpuSeconds(pid int) (float64, error) {
	var total float64
	for _, p := range family(pid) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p))
		if err != nil || len(threads) == 0 {
			return 0, fmt.Errorf("process %d is gone, or this kernel keeps no schedstat", p)
		}
		for _, t := range threads {
			b, err := os.ReadFile(t)
			if err != nil {
				return 0, fmt.Errorf("read CPU time: %w", err)
			}
			var ns float64
			if _, err := fmt.Sscan(string(b), &ns); err != nil {
				return 0, fmt.Errorf("read %s: %w", t, err)
			}
			total += ns / 1e9
		}
	}
	return total, nil
}

// holds is the memory (proportional set size, in bytes) and the number of descriptors
// of a process and its children. The kernel's memory for sockets is not in it: that is
// the same for all.
func holds(pid int) (memory int64, files int, err error) {
	for _, p := range family(pid) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
		if err != nil {
			return 0, 0, err
		}
		for line := range strings.Lines(string(b)) {
			if kib, ok := strings.CutPrefix(line, "Pss:"); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")), 10, 64)
				if err != nil {
					return 0, 0, err
				}
				memory += n << 10
			}
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p))
		if err != nil {
			return 0, 0, err
		}
		files += len(open)
	}
	return memory, files, nil
}

// openFiles is how many files a process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Max, 1<<20))
}
