//go:build !race

package simulation

const slow = 1
