package resolverservice

// describePeer says how a cluster's resolver service is heard.
func (s *Service) describePeer(cluster string) string { return s.links.Describe(cluster) }
