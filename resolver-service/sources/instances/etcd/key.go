package etcd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"unique"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// format stands before what this package writes. Another format is another prefix.
const format = "isthmus-instances/v1/"

// replicas is the folder that tells which replicas there are, each by a key with its
// lease. No namespace can have this name.
const replicas = "_replicas/"

// maxValue is how long a value may be. Those that are written here are shorter.
const maxValue = 4<<10 + catalog.MaxCallsText

func rootOf(prefix, cluster string) string { return prefix + format + cluster + "/" }

// keyOf is an instance's key below the root: <namespace>/<app>/<id>. An ID can hold
// anything, so it is escaped as in a URL.
func keyOf(k topology.InstanceKey) string {
	return k.App.Namespace + "/" + k.App.ID + "/" + url.PathEscape(k.ID)
}

// parseKey reads what keyOf makes, and nothing else.
func parseKey(key string) (topology.InstanceKey, error) {
	none := topology.InstanceKey{}
	parts := strings.Split(key, "/")
	if len(parts) != 3 {
		return none, errors.New("the key is none of an instance; want <namespace>/<app>/<id>")
	}
	id, err := url.PathUnescape(parts[2])
	if err != nil {
		return none, fmt.Errorf("the key's last part: %w", err)
	}
	k := topology.InstanceKey{App: catalog.App{Namespace: parts[0], ID: parts[1]}, ID: id}
	if err := k.App.Check(); err != nil {
		return none, err
	}
	if id == "" || keyOf(k) != key {
		return none, errors.New("the key's last part is not an ID, escaped as in a URL")
	}
	return k, nil
}

// value is what is written of an instance. A reader takes what a newer replica may add,
// so that replicas of two versions can run side by side.
type value struct {
	Address  netip.AddrPort `json:"address"`
	Draining bool           `json:"draining,omitempty"`
	// Unverified is catalog.Instance.Unverified.
	Unverified bool          `json:"unverified,omitempty"`
	Zone       string        `json:"zone,omitempty"`
	Version    string        `json:"version,omitempty"`
	Replica    string        `json:"replica"`         // where it is registered
	Since      int64         `json:"since,omitempty"` // catalog.Instance.Since
	Calls      catalog.Calls `json:"calls,omitempty"`
}

func encode(i *catalog.Instance, replica string) string {
	text, _ := json.Marshal(value{i.Address, i.Draining, i.Unverified, i.Zone, i.Version, replica, i.Since, i.Calls}) // of such fields it can't fail
	return string(text)
}

// origin says which registration a value is of. What can't be read is of nobody.
func origin(text []byte) (replica string, since int64) {
	var v struct {
		Replica string `json:"replica"`
		Since   int64  `json:"since"`
	}
	_ = json.Unmarshal(text, &v)
	return v.Replica, v.Since
}

// decode reads an instance from a key below the root and its value.
func decode(key string, text []byte) (i catalog.Instance, err error) {
	k, err := parseKey(key)
	if err != nil {
		return i, err
	}
	if len(text) > maxValue {
		return i, fmt.Errorf("the value has %d bytes; at most %d are taken", len(text), maxValue)
	}
	var v value
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&v); err != nil {
		return i, fmt.Errorf("the value is not what a replica writes: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return i, errors.New("the value is not what a replica writes: something stands after its end")
	}
	if zone := v.Address.Addr().Zone(); zone != "" { // of any bytes
		return i, fmt.Errorf("address %q holds on one machine only, by its zone %q", v.Address, zone)
	}
	if err := catalog.CheckAddress(v.Address); err != nil {
		return i, err
	}
	address := netip.AddrPortFrom(v.Address.Addr().Unmap(), v.Address.Port())
	return catalog.Instance{ID: k.ID, App: k.App, Address: address, Draining: v.Draining, Zone: v.Zone, Version: unique.Make(v.Version).Value(), Since: v.Since, Unverified: v.Unverified, Calls: v.Calls}, v.Calls.Check()
}
