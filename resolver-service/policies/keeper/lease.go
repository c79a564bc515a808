package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// A Lease (coordination.k8s.io/v1) that nobody has renewed for leaseTime may be taken.
const (
	leaseTime  = 15 * time.Second
	renewEvery = 4 * time.Second
	giveUp     = 10 * time.Second // without a renewal, the holder stops writing
)

// lease lets one replica at a time write.
type lease struct {
	api    *apiserver.Server
	folder string // path of the namespace's Leases
	name   string
	holder string

	seen    string    // holder and time of renewal as they were last seen
	seenAt  time.Time // by this machine's clock: those of others may be wrong
	version string
}

type leaseObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Holder   string `json:"holderIdentity"`
		Duration int    `json:"leaseDurationSeconds"`
		Renewed  string `json:"renewTime,omitempty"`
	} `json:"spec"`
}

const microTime = "2006-01-02T15:04:05.000000Z07:00"

// take tries to become or stay the holder. It returns who is.
func (l *lease) take(ctx context.Context) (holder string, err error) {
	text, err := l.api.Call(ctx, apiserver.Request{Method: http.MethodGet, Path: l.folder + "/" + l.name})
	if apiserver.Code(err) == http.StatusNotFound {
		return l.write(ctx, http.MethodPost, l.folder, l.holder)
	}
	if err != nil {
		return "", fmt.Errorf("get lease %s %w", l.name, err)
	}
	var o leaseObject
	if err := json.Unmarshal(text, &o); err != nil {
		return "", fmt.Errorf("lease %s at %s: %w", l.name, l.api.Host(), err)
	}
	l.version = o.Metadata.ResourceVersion
	if now := o.Spec.Holder + " " + o.Spec.Renewed; now != l.seen {
		l.seen, l.seenAt = now, time.Now()
	}
	if o.Spec.Holder != "" && o.Spec.Holder != l.holder && time.Since(l.seenAt) < leaseTime {
		return o.Spec.Holder, nil
	}
	return l.write(ctx, http.MethodPut, l.folder+"/"+l.name, l.holder)
}

func (l *lease) write(ctx context.Context, method, path, holder string) (string, error) {
	var o leaseObject
	o.APIVersion, o.Kind, o.Metadata.Name = "coordination.k8s.io/v1", "Lease", l.name
	o.Spec.Holder, o.Spec.Duration, o.Spec.Renewed = holder, int(leaseTime.Seconds()), time.Now().UTC().Format(microTime)
	if method == http.MethodPut {
		o.Metadata.ResourceVersion = l.version
	}
	body, _ := json.Marshal(&o) // of such fields it can't fail
	_, err := l.api.Call(ctx, apiserver.Request{Method: method, Path: path, ContentType: "application/json", Body: body})
	if apiserver.Code(err) == http.StatusConflict {
		return "another replica", nil // it was faster
	}
	if err != nil {
		return "", fmt.Errorf("write lease %s %w", l.name, err)
	}
	return holder, nil
}

// renew keeps the lease until ctx ends, another has it, or it could not be renewed for too long.
func (l *lease) renew(ctx context.Context) error {
	for last := time.Now(); live.Sleep(ctx, renewEvery); {
		limit, cancel := context.WithTimeout(ctx, renewEvery)
		holder, err := l.take(limit)
		cancel()
		switch {
		case err == nil && holder != l.holder:
			return fmt.Errorf("lease %s has gone to %s", l.name, holder)
		case err == nil:
			last = time.Now()
		case time.Since(last) > giveUp-renewEvery:
			return fmt.Errorf("not renewed for %s: %w", time.Since(last).Round(time.Second), err)
		}
	}
	return ctx.Err()
}

// release lets another replica go on at once.
func (l *lease) release() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if holder, err := l.take(ctx); err != nil || holder != l.holder {
		return
	}
	text, err := l.api.Call(ctx, apiserver.Request{Method: http.MethodGet, Path: l.folder + "/" + l.name})
	var o leaseObject
	if err == nil && json.Unmarshal(text, &o) == nil && o.Spec.Holder == l.holder {
		l.version = o.Metadata.ResourceVersion
		_, _ = l.write(ctx, http.MethodPut, l.folder+"/"+l.name, "")
	}
}
