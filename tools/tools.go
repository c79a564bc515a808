// Package tools pins the programs that generate and check code; see go.mod. "make generate",
// "make lint" and "make vulncheck" run them.
package tools
