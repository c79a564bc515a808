package configstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// KV answers the calls of a [ReadWriter] for a store of keys and values, but for Watch and Close.
// A backend embeds it, and gives it a [KVServer] for what its server does in its own way.
type KV struct{ on KVServer }

// KVServer is a server of keys and values. A path is a key without the prefix. The functions may
// be called by many at once, with a context that ends with the store.
type KVServer struct {
	Name      string // of the store, in errors
	Prefix    string // of every key
	Life      *Life
	MaxObject int // how many bytes of JSON an object may have
	AtOnce    int // how many paths Some takes; 0 for any number

	// Some reads the paths that are there.
	Some func(ctx context.Context, paths []string) ([]Pair, error)
	// All reads all that is watched.
	All func(ctx context.Context) ([]Pair, error)
	// Commit makes all edits or none, once [Write.CheckIf] has nothing against any. It returns the
	// revision of each.
	Commit func(ctx context.Context, edits []Edit) ([]string, error)
	// Create writes a value unless there is one. It is nil where the store has its own Identity.
	Create func(ctx context.Context, path, value string) error
	// Fail is the error of what was tried, with what to do about it. It names the server.
	Fail func(ctx context.Context, what string, err error) error
}

// Edit is a Write as a store of keys and values has it.
type Edit struct {
	Write
	Path  string
	Value []byte // nil where the object is deleted
}

// NewKV is the KV of a server.
func NewKV(on KVServer) KV { return KV{on} }

// Do makes a call, which ends with the context and with the store.
func (k KV) Do(ctx context.Context, what string, f func(context.Context) error) error {
	return k.on.Life.Do(ctx, func(ctx context.Context) error {
		if err := f(ctx); err != nil {
			return k.on.Fail(ctx, what, err)
		}
		return nil
	})
}

// Get is that of [Reader].
func (k KV) Get(ctx context.Context, key catalog.Key) (Stored, error) {
	got, err := k.GetMany(ctx, []catalog.Key{key})
	if err != nil {
		return Stored{}, err
	}
	return got[0].Stored, got[0].Err
}

// GetMany is that of [ManyGetter].
func (k KV) GetMany(ctx context.Context, keys []catalog.Key) ([]Got, error) {
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = api.KeyPath(key)
	}
	found := make(map[string][]Pair, len(keys))
	err := k.Do(ctx, "get "+k.describe(paths), func(ctx context.Context) error {
		most := k.on.AtOnce
		if most == 0 {
			most = max(len(paths), 1)
		}
		for few := range slices.Chunk(paths, most) {
			pairs, err := k.on.Some(ctx, few)
			if err != nil {
				return err
			}
			for _, p := range pairs {
				found[p.Path] = []Pair{p}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	got := make([]Got, len(keys))
	for i, key := range keys {
		got[i] = gotOf(k.on.Name, key, found[paths[i]])
	}
	return got, nil
}

// describe names what a call is about.
func (k KV) describe(paths []string) string {
	if len(paths) == 1 {
		return k.on.Prefix + paths[0]
	}
	return fmt.Sprintf("%d objects below %s%s", len(paths), k.on.Prefix, api.KeyPrefix)
}

// List is that of [Reader], within the scope.
func (k KV) List(ctx context.Context) ([]Stored, []Refusal, error) {
	ledger := Ledger{Prefix: k.on.Prefix}
	var all Change
	err := k.Do(ctx, "list "+k.on.Prefix+api.KeyPrefix, func(ctx context.Context) error {
		pairs, err := k.on.All(ctx)
		all = ledger.Reset(pairs, "")
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return all.Objects, all.Refused, nil
}

// Write is that of [Writer].
func (k KV) Write(ctx context.Context, writes ...Write) (revisions []string, err error) {
	edits, err := Edits(writes, k.on.MaxObject)
	if err != nil {
		return nil, fmt.Errorf("store %s: write: %w", k.on.Name, err)
	}
	err = k.Do(ctx, "write "+k.describe(Paths(edits)), func(ctx context.Context) (err error) {
		if len(edits) > 0 {
			revisions, err = k.on.Commit(ctx, edits)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return revisions, nil
}

// Paths is the paths of edits, in their order.
func Paths(edits []Edit) []string {
	paths := make([]string, len(edits))
	for i, e := range edits {
		paths[i] = e.Path
	}
	return paths
}

// Edits is writes as a server has them, if they are valid and no object has more bytes than most.
func Edits(writes []Write, most int) ([]Edit, error) {
	edits := make([]Edit, len(writes))
	for i, w := range writes {
		edits[i] = Edit{Write: w, Path: api.KeyPath(w.Key())}
		if w.Object == nil {
			continue
		}
		var err error
		if edits[i].Value, err = Encode(w.Object, most); err != nil {
			return nil, err
		}
	}
	return edits, CheckWrites(writes)
}

// Identity is that of [Identifier], in the key [IdentityPath]. Who may not read or write it gets
// none.
func (k KV) Identity(ctx context.Context, anew string) (id string, err error) {
	path := []string{IdentityPath}
	err = k.Do(ctx, "read or write "+k.describe(path), func(ctx context.Context) error {
		pairs, err := k.on.Some(ctx, path)
		if err == nil && len(pairs) == 0 && anew != "" {
			if err = k.on.Create(ctx, IdentityPath, anew); err == nil {
				pairs, err = k.on.Some(ctx, path)
			}
		}
		for _, p := range pairs {
			id = string(p.Value)
		}
		return err
	})
	if errors.Is(err, ErrDenied) {
		return "", nil
	}
	return id, err
}
