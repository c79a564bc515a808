package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// holds is the memory (proportional set size, in bytes) and the number of descriptors
// of a process and its children. The kernel's memory for sockets is not in it: that is
// the same for all.
func holds(pid int) (memory int64, files int, err error) {
	for _, p := range measure.Family(pid) {
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
