// Package tools pins the programs that generate code; see go.mod. Run them with
// "make generate".
package tools
