package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// CPU is the CPU time, user and system, that a process and its children have had. The
// scheduler's own count is used: that of /proc/<pid>/stat is in 10 ms.
func CPU(pid int) (total time.Duration, err error) {
	for _, p := range Family(pid) {
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
