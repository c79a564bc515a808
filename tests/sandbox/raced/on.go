//go:build race

package raced

// Enabled tells whether the race detector is on.
const Enabled = true
