package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Memory is what a process holds.
type Memory struct {
	Heap uint64 // bytes of live objects on Go's heap
	RSS  uint64 // bytes resident, as the kernel counts them; 0 where it can't tell
}

// Settled is this process's memory after a collection, with what Go has kept for later given back.
func Settled() Memory {
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return Memory{stats.HeapAlloc, Resident(os.Getpid())}
}

// Resident is how much memory of a process and its children is resident; 0 where the kernel can't
// tell.
func Resident(pid int) (bytes uint64) { return status(pid, "VmRSS") }

// Private is that part of it that is no page of a file, such as of the program itself.
func Private(pid int) (bytes uint64) { return status(pid, "RssAnon") }

func status(pid int, line string) (bytes uint64) {
	for _, p := range Family(pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		_, after, _ := strings.Cut(string(text), "\n"+line+":")
		var kib uint64
		_, _ = fmt.Sscan(after, &kib)
		bytes += kib << 10
	}
	return bytes
}

// Holds is the memory (proportional set size, in bytes) and the number of descriptors of a process
// and its children. The kernel's memory for sockets is not in it.
func Holds(pid int) (memory int64, files int) {
	for _, p := range Family(pid) {
		_, pss, _ := strings.Cut(string(Must(os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p)))), "\nPss:")
		var kib int64
		Must(fmt.Sscan(pss, &kib))
		memory, files = memory+kib<<10, files+len(Must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", p))))
	}
	return memory, files
}

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
func CPU(pid int) time.Duration { return scheduled(Family(pid)) }

// ChildrenCPU is the CPU time that the children of this process, and theirs, have had.
func ChildrenCPU() time.Duration { return scheduled(Family(os.Getpid())[1:]) }

// scheduled is the scheduler's own count of the CPU time of processes: that of /proc/<pid>/stat is in
// 10 ms.
func scheduled(processes []int) (total time.Duration) {
	for _, p := range processes {
		threads := Must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p)))
		Assert(len(threads) > 0, "process %d is gone, or this kernel keeps no schedstat", p)
		for _, t := range threads {
			var ns int64
			Must(fmt.Sscan(string(Must(os.ReadFile(t))), &ns))
			total += time.Duration(ns)
		}
	}
	return total
}

// Spent is the CPU time that a process and its children have had for something.
func Spent(pid int, do func()) time.Duration {
	before := CPU(pid)
	do()
	return CPU(pid) - before
}

// Written is how many bytes a process has written, to connections and files.
func Written(pid int) (bytes uint64) {
	_, after, _ := strings.Cut(string(Must(os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)))), "wchar: ")
	Must(fmt.Sscan(after, &bytes))
	return bytes
}

// OwnCPU is the CPU time that this process has had, without its children.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for bad arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
