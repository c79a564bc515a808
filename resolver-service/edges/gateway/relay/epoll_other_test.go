//go:build !linux

package relay

var nativeWays []way
