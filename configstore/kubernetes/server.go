package kubernetes

import "github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"

// apiServer is the API server, as the store asks it.
type apiServer struct{ *apiserver.Server }

func newAPIServer(c Config) (*apiServer, error) {
	server, err := apiserver.New(c.server())
	if err != nil {
		return nil, err
	}
	return &apiServer{server}, nil
}

func (c *Config) server() apiserver.Config {
	return apiserver.Config{Kubeconfig: c.Kubeconfig, Context: c.Context}
}
