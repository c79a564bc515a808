//go:build allcomponents

package main

// registerResolvers has nothing to do: Dapr registers all.
func registerResolvers() {}
