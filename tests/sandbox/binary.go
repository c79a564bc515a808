package sandbox

import "github.com/isthmus-mesh/isthmus/tests/sandbox/programs"

// ErrNoBinary is returned, wrapped, when a binary that a sandbox runs is not built.
var ErrNoBinary = programs.ErrNone

// Binary finds a program of the table in sandbox/programs, or isthmus; see [programs.Find].
func Binary(name string) (string, error) { return programs.Find(name) }

// programOr is the path of a program that was named, or the program of a name.
func programOr(path, name string) (string, error) {
	if path != "" {
		return path, nil
	}
	return Binary(name)
}
