//go:build race

package simulation

// slow is how many times fewer runs there are with the race detector.
const slow = 40
