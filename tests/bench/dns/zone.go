package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
)

// cluster is the name of the cluster that is measured.
const cluster = "west"

// asker is who asks. It has no selection, so it may call every app here.
var asker = catalog.App{Namespace: fleet.Namespace, ID: "asker"}

// address is where the only instance of the i-th app is.
func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), fleet.Port)
}

func instance(i int) catalog.Instance {
	at := address(i)
	return catalog.Instance{ID: at.String(), App: fleet.App(i), Address: at}
}

// name is the i-th app's, as everybody asks for it.
func name(i int) string {
	app := fleet.App(i)
	return app.ID + "." + app.Namespace + "." + catalog.DefaultDomain
}

// writeStore writes the apps as objects, which stand for their instances.
func writeStore(path string, names int) (err error) {
	store, err := embedded.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	writes := make([]configstore.Write, names)
	for i := range writes {
		app := fleet.App(i)
		writes[i].Object = &catalog.AppInstance{Namespace: app.Namespace, Name: app.ID, App: app.ID, Address: address(i)}
	}
	_, err = store.Write(context.Background(), writes...)
	return err
}

// writeLines writes a file of lines.
func writeLines(path string, lines func(printf func(format string, a ...any))) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	lines(func(format string, a ...any) { fmt.Fprintf(w, format+"\n", a...) }) // an error shows at Flush
	return w.Flush()
}

// writeZone writes the same names as a zone file, RFC 1035.
func writeZone(path string, names int) error {
	return writeLines(path, func(line func(string, ...any)) {
		line("$ORIGIN %s.\n$TTL 5", catalog.DefaultDomain)
		line("@ SOA ns x 1 5 5 5 5\n@ NS ns\nns A 127.0.0.1")
		for i := range names {
			line("%s. A %s", name(i), address(i).Addr())
		}
	})
}

// writeQueries writes what dnsperf asks: each name once, in no order.
func writeQueries(path string, names int) error {
	return writeLines(path, func(line func(string, ...any)) {
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(names) {
			line("%s A", name(i))
		}
	})
}
