package dapr

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// commitScript makes a batch. KEYS: the head, the objects, the indexes of their kinds.
// ARGV: how many objects, the new head or nothing, and for each key the SHA-1 that its text must
// still have, empty for a key that must not be there; then for each object S or D, its new
// text, the number of its index among the indexes (0 for none) and its name there.
// It answers -1 when all is done, and otherwise which key has changed.
const commitScript = `
local n = tonumber(ARGV[1])
for i = 1, n + 1 do
  local held = redis.call('GET', KEYS[i])
  local want = ARGV[i + 2]
  if (held and redis.sha1hex(held) or '') ~= want then return i - 1 end
end
local at = n + 4
for i = 2, n + 1 do
  local index = tonumber(ARGV[at + 2])
  if ARGV[at] == 'S' then
    redis.call('SET', KEYS[i], ARGV[at + 1])
    if index > 0 then redis.call('SADD', KEYS[n + 1 + index], ARGV[at + 3]) end
  else
    redis.call('DEL', KEYS[i])
    if index > 0 then redis.call('SREM', KEYS[n + 1 + index], ARGV[at + 3]) end
  end
  at = at + 4
end
if ARGV[2] ~= '' then redis.call('SET', KEYS[1], ARGV[2]) end
return -1`

// commit reads, decides, and has a script compare and write.
func (r *redisEngine) commit(ctx context.Context, paths []string, decide func(snapshot) (rewrite, error)) error {
	nonces := map[string]bool{}
	for {
		texts, err := r.texts(ctx, append([]string{headPath}, paths...))
		if err != nil {
			return err
		}
		was := snapshot{head: texts[headPath], pairs: map[string]held{}}
		if at, ok := parseHead(was.head); ok {
			for nonce := range nonces {
				if at.Knows(nonce) {
					return nil // it was made, and the answer was lost
				}
			}
		}
		for _, path := range paths {
			if text, ok := texts[path]; ok {
				was.pairs[path] = parseRedis(path, text)
			}
		}
		p, err := decide(was)
		if err != nil {
			return err
		}
		for _, b := range p.head.Batches[:min(1, len(p.head.Batches))] {
			nonces[b.Nonce] = true
		}
		changed, err := r.run(ctx, p, texts)
		if err != nil || changed < 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// run runs the script. changed is negative when it has written.
func (r *redisEngine) run(ctx context.Context, p rewrite, was map[string]string) (changed int64, err error) {
	keys := []any{r.names.key(headPath)}
	sums := []any{sumOf(was, headPath)}
	var edits []any
	for _, e := range p.edits {
		keys = append(keys, r.names.key(e.Path))
		sums = append(sums, sumOf(was, e.Path))
		kind, member, ok := kindOf(e.Path)
		index := 0
		for i, k := range indexedKinds {
			if ok && k == kind {
				index = i + 1
			}
		}
		op, text := "S", string(e.Value)
		if version := p.version(); version != "" {
			text += valueMark + version
		}
		if e.Value == nil {
			op, text = "D", ""
		}
		edits = append(edits, op, text, index, member)
	}
	for _, kind := range indexedKinds {
		keys = append(keys, r.names.key(indexPath+kind))
	}
	args := append([]any{"EVAL", commitScript, len(keys)}, keys...)
	args = append(args, len(p.edits), p.headText())
	args = append(append(args, sums...), edits...)
	answer, err := r.do(ctx, args...)
	if notWritable(err) {
		return 0, fmt.Errorf("%w: %w", configstore.ErrReadOnly, err)
	}
	if err != nil {
		return 0, err
	}
	changed, err = strconv.ParseInt(fmt.Sprint(answer), 10, 64)
	return changed, err
}

// notWritable tells whether Redis refused the script, or a command in it, because of who
// asked or of what it is.
func notWritable(err error) bool {
	return noPermission(err) || err != nil && slices.ContainsFunc([]string{
		"The user executing the script can't", "READONLY", "can't write against a read only",
	}, func(text string) bool { return strings.Contains(err.Error(), text) })
}

func sumOf(texts map[string]string, path string) string {
	text, ok := texts[path]
	if !ok {
		return ""
	}
	sum := sha1.Sum([]byte(text)) // which Redis can compute; it tells texts apart and protects nothing
	return hex.EncodeToString(sum[:])
}

// reindex adds what a scan finds to the indexes, and takes out what is not there.
func (r *redisEngine) reindex(ctx context.Context) (int, error) {
	if !r.names.scope.All() || r.cluster {
		return 0, fmt.Errorf("%w: of a Redis Cluster, or for one app only, keys can't be listed; SADD each to %s<Kind>", configstore.ErrReadOnly, r.names.key(indexPath))
	}
	there := map[string]map[any]bool{}
	for _, kind := range indexedKinds {
		there[kind] = map[any]bool{}
	}
	n := 0
	err := r.scan(ctx, func(key string) {
		path, ok := r.names.path(key)
		if !ok {
			return
		}
		if _, err := api.ParseKeyPath(path); err != nil {
			return
		}
		kind, member, _ := kindOf(path)
		if !there[kind][member] {
			there[kind][member] = true
			n++
		}
	})
	if err != nil {
		return 0, err
	}
	for kind, members := range there {
		if err := r.reindexKind(ctx, kind, members); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (r *redisEngine) reindexKind(ctx context.Context, kind string, there map[any]bool) error {
	index := r.names.key(indexPath + kind)
	add := []any{"SADD", index}
	for member := range there {
		add = append(add, member)
	}
	if len(add) > 2 {
		if _, err := r.do(ctx, add...); err != nil {
			return err
		}
	}
	members, err := r.strings(ctx, "SMEMBERS", index)
	if err != nil {
		return err
	}
	for _, member := range members {
		if there[member] {
			continue
		}
		got, err := r.some(ctx, []string{api.KeyPrefix + member}) // it may be there since
		if err != nil {
			return err
		}
		if len(got.pairs) == 0 {
			if _, err := r.do(ctx, "SREM", index, member); err != nil {
				return err
			}
		}
	}
	return nil
}
