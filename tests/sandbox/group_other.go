//go:build !linux

package sandbox

import "syscall"

// ownGroup starts a process in a group of its own. Only Linux can end it with its
// parent; elsewhere a sandbox that is killed leaves its processes behind.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
