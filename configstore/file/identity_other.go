//go:build !linux

package file

func bornAt(string) int64 { return 0 }
