package dial

import (
	"cmp"
	"time"
)

// instance is what the connections to one instance share, directly or through several gateways.
type instance struct {
	latency latency

	// The fields below belong to planBalancer.mu.
	endpoints int       // that use this instance
	endedAt   time.Time // when a connection through a gateway last ended
}

// id is the instance that an endpoint leads to: by its name at a gateway, or by its address.
func (k endpointKey) id() string { return cmp.Or(k.name, k.address) }

// acquireInstance returns the instance that an endpoint leads to. The caller holds the lock.
func (es *endpoints) acquireInstance(key endpointKey) *instance {
	i := es.instances[key.id()]
	if i == nil {
		i = &instance{}
		es.instances[key.id()] = i
	}
	i.endpoints++
	return i
}

// releaseInstance forgets the instance with its last endpoint. The caller holds the lock.
func (es *endpoints) releaseInstance(e *endpoint) {
	if e.instance.endpoints--; e.instance.endpoints == 0 {
		delete(es.instances, e.id())
	}
}
