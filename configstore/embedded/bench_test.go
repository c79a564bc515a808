package embedded

import (
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

func BenchmarkStartWith10000(b *testing.B) {
	path := filepath.Join(b.TempDir(), "isthmus.db")
	s := open(b, path)
	storetest.Fill(b, s, 1000, storetest.Selections(10_000))
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	storetest.BenchmarkStart(b, 10_000, func() configstore.ReadWriter { return open(b, path) })
}

func BenchmarkWriteToDeliver(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "isthmus.db"))
	defer s.Close()
	fill(b, s, 10_000)
	storetest.BenchmarkDeliver(b, s, func(o *catalog.Cluster) { storetest.Put(b, s, o) }, nil)
}
