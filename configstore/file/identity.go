package file

import "os"

// identity is which directory there is at a path. A number alone doesn't tell: file systems give
// that of a directory which was removed to the next one.
type identity struct {
	info os.FileInfo // nil: none yet
	born int64
}

func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	return identity{info, bornAt(path)}, err
}

func (i identity) same(o identity) bool {
	return i.info != nil && os.SameFile(i.info, o.info) && i.born == o.born
}
