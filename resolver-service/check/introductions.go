package check

import "fmt"

// introductions finds clusters that peers introduce and that don't count here as they say.
func introductions(f *Facts) (all []Result) {
	for _, p := range f.Status.GetPeers() {
		i := p.GetIntroduces()
		for _, problem := range i.GetProblems() {
			r := Result{Level: Warn, Kind: ofPeer, Name: p.GetCluster(), Found: "introduces " + problem.GetCluster() + ", which is refused: " + problem.GetWhy()}
			r.Fix = fmt.Sprintf("correct Cluster %s there or spec.introduces of Cluster %s here, or leave %[1]s out by its names", problem.GetCluster(), p.GetCluster())
			if problem.GetDiffers() {
				r.Found = "introduces " + problem.GetCluster() + " otherwise: " + problem.GetWhy()
			}
			all = append(all, r)
		}
		if n := i.GetOver(); n > 0 {
			all = append(all, Result{
				Level: Warn, Kind: ofPeer, Name: p.GetCluster(), Found: fmt.Sprintf("introduces more than is kept of one cluster: %d are left out", n),
				Fix: "narrow introduceTo there, or have two clusters introduce a part each",
			})
		}
	}
	return all
}
