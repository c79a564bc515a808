package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// spent is the time of a processor that a process has used (proc(5): stat, utime and stime).
func spent(pid int) (used time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	for _, field := range strings.Fields(rest)[11:13] {
		ticks, _ := strconv.Atoi(field)
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}
