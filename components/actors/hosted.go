package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// hosted are the types that the sidecar is to host: those that apps here select, and no app here
// hosts. It hosts a type whose owner is away or in dispute, too, so that callers are told why.
func (b *Bridge) hosted() []string {
	types := []string{}
	view, _ := b.view.Load()
	local, _ := b.local.Load()
	for i := range view.Imports {
		typ := view.Imports[i].Type
		if at, here := local[typ]; here {
			b.often.Warn("local "+typ, "an actor type of another cluster is hosted here, too; it is not bridged until one of the two is gone",
				"type", typ, "owner", view.Imports[i].Owner, "host", at)
			continue
		}
		types = append(types, typ)
	}
	return types
}

// restartSpread is in how much time the replicas of a bridge restart their sidecars one after the
// other, when types change. Meanwhile the others host what has not changed.
const restartSpread = 4 * time.Second

// host has the sidecar restarted each time that it is to host other types: it reads them at its start
// only.
func (b *Bridge) host(ctx context.Context) error {
	for {
		_, _, viewChanged := b.view.Follow()
		_, _, localChanged := b.local.Follow()
		if told := b.announced.Load(); told != nil && !slices.Equal(*told, b.hosted()) {
			if len(*told) > 0 && !live.Sleep(ctx, rand.N(restartSpread)) {
				return nil
			}
			b.log.Info("the types of actors to bridge have changed; restarting the sidecar", "from", *told, "to", b.hosted())
			b.announced.Store(nil)
			if err := b.sidecar.Restart(ctx, b.tokens); err != nil && ctx.Err() == nil {
				b.log.Warn("can't restart the sidecar; it hosts the types of before", "err", err)
				b.announced.Store(told)
				live.Sleep(ctx, time.Second)
			}
			continue
		}
		select {
		case <-viewChanged:
		case <-localChanged:
		case <-time.After(time.Second): // until the sidecar has asked
		case <-ctx.Done():
			return nil
		}
	}
}

// pollInterval is how often the placement service is asked.
const pollInterval = 2 * time.Second

// watchPlacement keeps up to date which types apps of this cluster host.
func (b *Bridge) watchPlacement(ctx context.Context) error {
	if b.cfg.Placement == "" {
		b.log.Warn("without placement, nobody sees whether an app here hosts a type that another cluster owns; set it to the placement service's state")
		b.local.Store(map[string]string{})
		return nil
	}
	known := false
	for {
		local, err := b.hosts(ctx)
		switch last, _ := b.local.Load(); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			b.often.Warn("placement", "can't ask the placement service which types apps here host; going by its last answer", "err", err)
		case !known || !sameHosts(last, local):
			known = true
			b.local.Store(local)
		}
		if !live.Sleep(ctx, pollInterval) {
			return nil
		}
	}
}

func sameHosts(a, b map[string]string) bool {
	for typ := range a {
		if _, ok := b[typ]; !ok {
			return false
		}
	}
	return len(a) == len(b)
}

// placementState is the part of the placement service's state that counts.
type placementState struct {
	Tables map[string]struct {
		Hosts []struct {
			Address  string   `json:"name"`
			App      string   `json:"id"`
			Entities []string `json:"entities"`
		} `json:"hosts"`
	} `json:"tables"`
}

// maxState is the longest state that is read.
const maxState = 64 << 20

// hosts asks the placement service which types apps other than bridges host in the namespace, and
// where.
func (b *Bridge) hosts(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pollInterval)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.cfg.Placement, nil)
	if err != nil {
		return nil, err
	}
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s; start the placement service with --metadata-enabled", b.cfg.Placement, res.Status)
	}
	var state placementState
	if err := json.NewDecoder(io.LimitReader(res.Body, maxState)).Decode(&state); err != nil {
		return nil, fmt.Errorf("GET %s: %w", b.cfg.Placement, err)
	}
	return state.hosts(b.cfg.Namespace, b.cfg.App().ID), nil
}

func (s *placementState) hosts(namespace, bridge string) map[string]string {
	all := map[string]string{}
	for _, host := range s.Tables[namespace].Hosts {
		for _, typ := range host.Entities {
			if host.App != bridge {
				all[typ] = fmt.Sprintf("app %s/%s at %s", namespace, host.App, host.Address)
			}
		}
	}
	return all
}
