// Package raced tells tests whether they run with the race detector, which takes some ten times as
// long for what computes: those do less then.
package raced

// Fewer is a number for a test that does so many of something, or a tenth of them with the race
// detector.
func Fewer(n int) int {
	if Enabled {
		return (n + 9) / 10
	}
	return n
}
