package gateway

func newRelay(cfg relayConfig) (relay, error) { return newCopyRelay(cfg) }
