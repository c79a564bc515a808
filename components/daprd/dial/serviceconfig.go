package dial

// The policy of our channels.
const balancerName = "isthmus_plan"

const baseServiceConfig = `{"loadBalancingConfig": [{"` + balancerName + `": {}}]}`

// retryConfig has a call that was cut off made once more, and elsewhere; where there is only
// one way it is not used. It waits for a moment: where a whole cluster ends, the connections
// to its instances end one after the other, and the second attempt is the last.
//
// A call that is cut off may have reached its app, so this can run it twice. daprd by
// itself takes that risk too: it tries a call that ends with Unavailable up to three
// times more, whatever its method. But not always, and this makes no difference there,
// since gRPC knows neither: a target with a Resiliency policy is tried again by that
// policy only, and a request whose length is unknown (chunked) never. gRPC gives up too once
// the answer has begun, or when more than 256 KiB would have to be sent again.
//
// It is not for what apps proxy over gRPC, where their own rules hold.
const retryServiceConfig = `{
	"loadBalancingConfig": [{"` + balancerName + `": {}}],
	"methodConfig": [{
		"name": [{"service": "dapr.proto.internals.v1.ServiceInvocation"}],
		"retryPolicy": {
			"maxAttempts": 2,
			"initialBackoff": "0.03s", "maxBackoff": "0.03s", "backoffMultiplier": 1,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}]
}`

func serviceConfig(retry bool) string {
	if retry {
		return retryServiceConfig
	}
	return baseServiceConfig
}
