package etcdclient

import (
	"context"
	"iter"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// PageLength is how many keys one answer has at most. Even of large objects that is less
// than what gRPC can carry.
const PageLength = 500

// Pages reads all keys from begin to before end, page by page, as they were at one revision; 0 is
// now. An empty end means the key begin alone. An error ends the sequence.
func (c *Client) Pages(ctx context.Context, begin, end string, revision int64) iter.Seq2[*clientv3.GetResponse, error] {
	return func(yield func(*clientv3.GetResponse, error) bool) {
		for more := true; more; {
			options := []clientv3.OpOption{clientv3.WithLimit(PageLength), clientv3.WithRev(revision)}
			if end != "" {
				options = append(options, clientv3.WithRange(end))
			}
			timed, cancel := context.WithTimeout(ctx, c.Config.Timeout)
			page, err := c.Get(timed, begin, options...)
			cancel()
			if !yield(page, err) || err != nil {
				return
			}
			if revision == 0 {
				revision = page.Header.Revision
			}
			if more = page.More && len(page.Kvs) > 0; more {
				begin = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
			}
		}
	}
}
