package simulation

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/file"
)

// Stores have no part in the bubble: they are real, and real processes write to them that are killed.

// storeKinds are the stores on this machine's disk, and how many processes write to each at a time.
var storeKinds = map[string]struct {
	open      func(path string) (configstore.ReadWriter, error)
	processes int
}{
	"embedded": {func(path string) (configstore.ReadWriter, error) {
		return embedded.Open(filepath.Join(path, "isthmus.db"))
	}, 1},
	"file": {func(path string) (configstore.ReadWriter, error) { return file.Open(path, discardLog) }, 2},
}

// openStore opens a store, once its disk has room.
func openStore(name, path string) (s configstore.ReadWriter, err error) {
	for range 500 {
		if s, err = storeKinds[name].open(path); !errors.Is(err, syscall.ENOSPC) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return s, err
}

// operation is one access of a writer on an object. Each value is written once.
type operation struct {
	ID     string
	Begin  int64 // Unix, ns
	End    int64 `json:",omitempty"` // 0: nobody knows how it ended
	Object string
	If     string `json:",omitempty"` // the value that must be there; "-" for none; empty for any
	Write  string `json:",omitempty"` // empty: it is a read
	Won    bool   `json:",omitempty"` // of a write
	Read   string `json:",omitempty"` // "-" for none
}

const absent = "-"

// register is an object as its writers may see it. A write of which nobody knows how it ended may have
// been made at any later time, or never.
var register = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		of := map[string][]porcupine.Operation{}
		for _, o := range all {
			name := o.Input.(operation).Object
			of[name] = append(of[name], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range of {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return absent },
	Step: func(state, _, output any) (bool, any) {
		now, o := state.(string), output.(operation)
		fits := o.If == "" || o.If == now
		switch {
		case o.Write == "":
			return o.Read == now, now
		case o.End == 0 && fits, o.Won && fits:
			return true, o.Write
		default:
			return !o.Won && (o.End == 0 || !fits), now
		}
	},
}

// TestStores kills the writers of a store again and again. No write that a store has acknowledged may be
// lost or undone, and of two writers with the same precondition one wins at most.
func TestStores(t *testing.T) {
	for name := range storeKinds {
		t.Run(name, func(t *testing.T) { killWriters(t, name, t.TempDir()) })
	}
}

// killWriters has processes write to a store until they are killed, some rounds, and checks what they noted.
func killWriters(t *testing.T, name, path string) {
	kind, r := storeKinds[name], rand.New(rand.NewPCG(*seedFlag, 3))
	var all []operation
	for round := range 4 {
		killAfter := time.Duration(100+r.IntN(300)) * time.Millisecond
		var writing sync.WaitGroup
		var mu sync.Mutex
		for process := range kind.processes {
			writing.Go(func() {
				ops, err := writeUntil(killAfter, name, path, fmt.Sprintf("%d.%d", round, process))
				mu.Lock()
				defer mu.Unlock()
				if all = append(all, ops...); err != nil {
					t.Error(err)
				}
			})
		}
		writing.Wait()
	}
	s, err := openStore(name, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &writer{store: s, id: "last", revisions: map[string]string{}, note: func(o operation) { all = append(all, o) }}
	for _, object := range written {
		w.read(object)
	}
	check(t, all)
}

// check checks a history. What has no end is left out of it where the same operation has one, and where
// nobody saw its value: it may never have been made.
func check(t *testing.T, all []operation) {
	t.Helper()
	last := map[string]operation{}
	for _, o := range all {
		if last[o.ID].End == 0 {
			last[o.ID] = o
		}
	}
	seen := map[string]bool{}
	for _, o := range last {
		seen[o.Read], seen[o.If] = true, true
	}
	var history []porcupine.Operation
	won, open := 0, 0
	for _, o := range last {
		end := o.End
		switch {
		case end == 0 && !seen[o.Write]:
			continue
		case end == 0:
			end = math.MaxInt64
			open++
		case o.Won:
			won++
		}
		history = append(history, porcupine.Operation{Input: o, Call: o.Begin, Output: o, Return: end})
	}
	t.Logf("%d operations, %d writes made, %d cut off", len(history), won, open)
	if won == 0 {
		t.Error("no write was made")
	}
	if got := porcupine.CheckOperationsTimeout(register, history, time.Minute); got != porcupine.Ok {
		t.Errorf("store: the history is not that of a register with preconditions: %s", got)
	}
}

func TestALostWriteIsFound(t *testing.T) {
	wins := func(id string, begin int64, from, to string) operation {
		return operation{ID: id, Begin: begin, End: begin + 5, Object: "a", If: from, Write: to, Won: true}
	}
	for what, all := range map[string][]operation{
		"lost":           {wins("1", 0, absent, "x"), {ID: "2", Begin: 10, End: 11, Object: "a", Read: absent}},
		"undone":         {wins("1", 0, absent, "x"), wins("2", 10, "x", "y"), {ID: "3", Begin: 20, End: 21, Object: "a", Read: "x"}},
		"two winners":    {wins("1", 0, absent, "x"), wins("2", 10, "x", "y"), wins("3", 12, "x", "z")},
		"a late failure": {{ID: "1", Begin: 0, End: 5, Object: "a", Write: "x"}},
	} {
		var history []porcupine.Operation
		for _, o := range all {
			history = append(history, porcupine.Operation{Input: o, Call: o.Begin, Output: o, Return: o.End})
		}
		if porcupine.CheckOperations(register, history) {
			t.Errorf("%s: it is not found", what)
		}
	}
}

// writerEnv has a process of the tests write to a store: kind, path and name, with spaces between.
const writerEnv = "ISTHMUS_SIMULATION_WRITER"

// writeUntil runs a process that writes, and kills it. It returns what that noted.
func writeUntil(after time.Duration, kind, path, id string) (all []operation, err error) {
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), writerEnv+"="+strings.Join([]string{kind, path, id}, " "))
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	var kill *time.Timer
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if kill == nil { // it has begun
			kill = time.AfterFunc(after, func() { _ = p.Process.Kill() })
		}
		var o operation
		if json.Unmarshal(lines.Bytes(), &o) == nil { // the last line may be cut off
			all = append(all, o)
		}
	}
	_ = p.Wait() // it was killed
	if len(all) == 0 {
		err = fmt.Errorf("the writer %s noted nothing", id)
	}
	return all, err
}

// written are the objects that writers change.
var written = []string{"first", "second"}

// writers write to a store until they are killed.
func writers(args string) {
	what := strings.Fields(args)
	s, err := openStore(what[0], what[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var all sync.WaitGroup
	for n := range 3 {
		w := &writer{store: s, id: fmt.Sprintf("%s.%d", what[2], n), revisions: map[string]string{}, note: func(o operation) {
			line, _ := json.Marshal(o) // of texts: no error
			_, _ = os.Stdout.Write(append(line, '\n'))
		}}
		all.Go(func() {
			for {
				w.read(written[rand.IntN(len(written))])
				w.write(written[rand.IntN(len(written))])
			}
		})
	}
	all.Wait()
}

// writer makes one operation after the other, and notes when each begins and how it ends.
type writer struct {
	store     configstore.ReadWriter
	id        string
	n         int
	revisions map[string]string // what was read last of each object, and its revision
	note      func(operation)
}

func (w *writer) begin(object string) operation {
	w.n++
	return operation{ID: fmt.Sprintf("%s.%d", w.id, w.n), Object: object, Begin: time.Now().UnixNano()}
}

func (w *writer) read(object string) {
	o := w.begin(object)
	stored, err := w.store.Get(context.Background(), exportOf(object, "").Key())
	if o.Read = absent; err == nil {
		o.Read = stored.Object.(*catalog.AppExport).Allow[0].App
	} else if !errors.Is(err, configstore.ErrNotFound) {
		return // it tells nothing
	}
	w.revisions[object] = o.Read + " " + stored.Revision
	o.End = time.Now().UnixNano()
	w.note(o)
}

func (w *writer) write(object string) {
	read, revision, _ := strings.Cut(w.revisions[object], " ")
	o := w.begin(object)
	o.Write = "v" + strings.ReplaceAll(o.ID, ".", "-")
	var precondition string
	switch {
	case rand.IntN(5) == 0: // whatever is there
	case read == absent:
		o.If, precondition = absent, configstore.Absent
	case read != "":
		o.If, precondition = read, revision
	}
	w.note(o)
	_, err := w.store.Write(context.Background(), configstore.Write{Object: exportOf(object, o.Write), If: precondition})
	if err != nil && !errors.Is(err, configstore.ErrConflict) {
		time.Sleep(10 * time.Millisecond) // until the disk may have room
		return                            // nobody knows
	}
	o.Won, o.End = err == nil, time.Now().UnixNano()
	w.note(o)
}

func exportOf(object, value string) *catalog.AppExport {
	return &catalog.AppExport{App: app(object), Allow: []catalog.Allow{{Cluster: "west", App: value}}}
}
