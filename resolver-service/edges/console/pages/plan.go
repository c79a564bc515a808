package pages

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// plan is the page that tries a change out.
type plan struct {
	Text     string
	Lines    []line    // of the text, where it has mistakes
	Mistakes []mistake // of the text
	Refused  string    // why the service takes no such change
	Reload   string    // where what is stored now is, after a conflict

	Delete  *catalog.Key // the change is the deletion of this object
	Applied *v1alpha1.ApplyResponse
	Pins    []string // the revision of each object that was shown
	Changes int      // objects that become others
	Moves   *moves
	Before  *picture
	After   *picture
	Done    bool // it was written
}

// mistake is what is wrong with a text, at a line; 0 for all of it.
type mistake struct {
	Line int
	Text string
}

// mostPictured is how many lookups a plan's pictures show.
const mostPictured = 40

func planForm(r *request) (*content, error) {
	v := &plan{}
	shown := &content{Page: v, Title: "Plan", Command: "isthmus apply -f FILE --diff --dry-run"}
	var err error
	switch {
	case r.FormValue("delete") != "":
		return planDelete(r, v, shown)
	case r.FormValue("restore") != "":
		v.Text, err = r.past(r.FormValue("restore"), r.FormValue("revision"))
	case r.FormValue("object") != "":
		v.Text, err = r.stored(r.FormValue("object"))
	}
	return shown, err
}

// stored is the text of an object as it is, or of a new one of that name.
func (r *request) stored(name string) (string, error) {
	key, err := keyNamed(name)
	if err != nil {
		return "", err
	}
	all, err := r.objects(key)
	switch {
	case status.Code(err) == codes.NotFound, err == nil && len(all) == 0:
		return skeleton(key), nil
	case err != nil:
		return "", err
	}
	return string(api.EncodeYAMLAt(all[0].Object, all[0].Revision)), nil
}

// skeleton is how an object begins that is not there yet.
func skeleton(k catalog.Key) string {
	metadata := "name: " + k.Name
	if k.Namespace != "" {
		metadata = "namespace: " + k.Namespace + ", " + metadata
	}
	spec := map[catalog.Kind]string{
		catalog.KindAppEndpoints: "spec:\n  endpoints:\n  - app: \n",
		catalog.KindAppExport:    "spec:\n  allow:\n  - {cluster: }\n",
		catalog.KindCluster:      "spec:\n  gateways: []\n",
	}[k.Kind]
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {%s}\n%s", catalog.Version, k.Kind, metadata, spec)
}

// past is the text of an object as it was, to be written over what it is now.
func (r *request) past(name, revision string) (string, error) {
	key, err := keyNamed(name)
	if err != nil {
		return "", err
	}
	answer, err := v1alpha1.NewObjectsClient(r.Conn).History(r.ctx, &v1alpha1.HistoryRequest{Key: wire.Key(key)})
	if err != nil {
		return "", err
	}
	for _, v := range answer.GetVersions() {
		if v.GetRevision() != revision || len(v.GetJson()) == 0 {
			continue
		}
		object, err := api.DecodeJSON(api.KeyPath(key), v.GetJson())
		if err != nil {
			return "", err
		}
		now, err := r.optional(key)
		if now == nil || err != nil {
			return string(api.EncodeYAML(object)), err
		}
		return string(api.EncodeYAMLAt(object, now.Revision)), nil
	}
	return "", refuse(http.StatusNotFound, "%s: no revision %s is remembered that could be written again", key, revision)
}

// planDelete shows what a deletion would do.
func planDelete(r *request, v *plan, shown *content) (*content, error) {
	key, err := keyNamed(r.FormValue("delete"))
	if err != nil {
		return nil, err
	}
	answer, err := v1alpha1.NewObjectsClient(r.Conn).Delete(r.ctx, &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{wire.Key(key)}, DryRun: true, WithHeld: true})
	if err != nil {
		return nil, err
	}
	v.Delete = &key
	if err := v.take(answer, true, r); err != nil {
		return nil, err
	}
	v.pin(answer)
	shown.Title, shown.Command = "Delete "+key.String(), "isthmus delete "+kindOf(key)+" "+key.NamespacedName()+" --dry-run"
	return shown, nil
}

// take takes what a change comes to.
func (v *plan) take(answer *v1alpha1.ApplyResponse, dryRun bool, r *request) error {
	v.Applied, answer.DryRun = answer, dryRun
	for _, result := range answer.GetResults() {
		if result.GetResult() != "unchanged" {
			v.Changes++
		}
	}
	if !dryRun {
		return nil
	}
	var err error
	if v.Moves, err = weigh(r, answer); err != nil {
		return err
	}
	if more := len(answer.GetEffects()) - mostEffects; more > 0 {
		answer.Effects, answer.EffectsLeftOut = answer.GetEffects()[:mostEffects], answer.GetEffectsLeftOut()+uint32(more)
	}
	return v.draw(r)
}

// draw draws the lookups before and after, with the same clusters at the same places.
func (v *plan) draw(r *request) error {
	now, err := r.status()
	if err != nil {
		return err
	}
	own, effects := now.GetCluster(), v.Applied.GetEffects()
	var before, after []decision
	for _, e := range effects[:min(len(effects), mostPictured)] {
		caller, app := cmp.Or(show.Name(e.GetCaller()), "*/any without a selection"), show.Name(e.GetApp())
		before, after = append(before, decision{caller, app, e.GetBefore()}), append(after, decision{caller, app, e.GetAfter()})
	}
	if len(before) == 0 {
		return nil
	}
	was, is := decided(own, before), decided(own, after)
	states := map[string]string{}
	for _, g := range []*v1alpha1.GraphResponse{was, is} {
		for cluster := range ways(g) {
			states[cluster] = ""
		}
	}
	few := len(now.GetPeers()) <= mostColumns
	for _, p := range now.GetPeers() {
		if _, used := states[p.GetCluster()]; few || used {
			states[p.GetCluster()] = p.GetState()
		}
	}
	delete(states, own)
	for _, cluster := range slices.Sorted(maps.Keys(states)) {
		was.Clusters = append(was.Clusters, &v1alpha1.GraphCluster{Name: cluster, State: states[cluster]})
	}
	is.Clusters = was.GetClusters()
	v.Before, v.After = draw(was, nil, appPath, ""), draw(is, nil, appPath, "")
	return nil
}

// text is a form's text, with the line ends of every system but the browsers' own.
func (r *request) text() string { return strings.ReplaceAll(r.PostFormValue("text"), "\r\n", "\n") }

func planPage(r *request) (*content, error) {
	v := &plan{Text: r.text()}
	shown := &content{Page: v, Title: "Plan", Command: "isthmus apply -f FILE --diff --dry-run"}
	manifests := v.read()
	if manifests == nil {
		shown.Status = http.StatusBadRequest
		return shown, nil
	}
	answer, err := v1alpha1.NewObjectsClient(r.Conn).Apply(r.ctx, &v1alpha1.ApplyRequest{Objects: applied(manifests), DryRun: true, WithHeld: true})
	if err != nil {
		return v.refused(r, shown, manifests, err)
	}
	if err := v.take(answer, true, r); err != nil {
		return nil, err
	}
	objects := objectsOf(manifests)
	if err := show.AddDiffs(answer, objects); err != nil {
		return nil, err
	}
	v.warn(r, objects)
	v.pin(answer)
	return shown, nil
}

// pin holds the change to the revisions of what was shown.
func (v *plan) pin(answer *v1alpha1.ApplyResponse) {
	for _, result := range answer.GetResults() {
		v.Pins = append(v.Pins, pin(result))
	}
}

// read reads the objects of the text; nil where it has mistakes, which it notes.
func (v *plan) read() []api.Manifest {
	manifests, mistakes := api.DecodeFile("", []byte(v.Text), nil)
	for _, m := range mistakes {
		v.Mistakes = append(v.Mistakes, mistake{int(m.Line), strings.TrimPrefix(m.Error(), fmt.Sprintf(":%d:%d: ", m.Line, m.Column))})
	}
	if len(mistakes) == 0 && len(manifests) == 0 {
		v.Mistakes = []mistake{{0, "there is no object in the text; write or paste one, such as isthmus get prints"}}
	}
	if len(v.Mistakes) == 0 {
		return manifests
	}
	v.Lines = around(linesOf(v.Text), v.Mistakes)
	return nil
}

// around marks the lines with mistakes, and keeps those near them; all of a short text.
func around(lines []line, mistakes []mistake) []line {
	const near, short = 5, 1000
	kept := make([]bool, len(lines))
	for _, m := range mistakes {
		if m.Line < 1 || m.Line > len(lines) {
			continue
		}
		lines[m.Line-1].Marked = true
		for n := max(m.Line-near, 1); n <= min(m.Line+near, len(lines)); n++ {
			kept[n-1] = true
		}
	}
	if len(lines) <= short {
		return lines
	}
	var some []line
	for i, one := range lines {
		if kept[i] {
			one.Text = clipped(one.Text)
			some = append(some, one)
		}
	}
	return some
}

// clipped is a line of a long text, which may be all of it.
func clipped(text string) string {
	if len(text) <= 500 {
		return text
	}
	return strings.ToValidUTF8(text[:500], "") + "…"
}

// warn adds what the command line warns of before it applies.
func (v *plan) warn(r *request, objects []catalog.Object) {
	var b bytes.Buffer
	show.WarnOfRoots(&b, objects, r.now)
	show.WarnOfGateways(&b, objects)
	for text := range strings.Lines(b.String()) {
		v.Applied.Warnings = append(v.Applied.Warnings, strings.TrimPrefix(strings.TrimSpace(text), "warning: :"))
	}
}

// refused is the page for a change that the service does not take. The text stays.
func (v *plan) refused(r *request, shown *content, manifests []api.Manifest, err error) (*content, error) {
	code := status.Code(err)
	if !slices.Contains([]codes.Code{codes.InvalidArgument, codes.Aborted, codes.FailedPrecondition}, code) {
		return nil, err
	}
	v.Refused, shown.Status = r.Explain(err).Error(), statuses[code]
	switch {
	case code != codes.Aborted:
	case v.Delete != nil:
		v.Refused += "; nothing was deleted"
		v.Reload = withQuery("/plan", "delete", named(*v.Delete))
	case len(manifests) > 0:
		v.Refused += "; nothing was written"
		v.Reload = withQuery("/plan", "object", named(manifests[0].Key()))
	}
	return shown, nil
}

// applied are objects as a request has them.
func applied(manifests []api.Manifest) (all []*v1alpha1.ApplyObject) {
	for _, m := range manifests {
		all = append(all, &v1alpha1.ApplyObject{Json: api.EncodeJSON(m.Object), IfRevision: m.Revision})
	}
	return all
}

func objectsOf(manifests []api.Manifest) (all []catalog.Object) {
	for _, m := range manifests {
		all = append(all, m.Object)
	}
	return all
}

// pin is the revision that an object must still have for what was shown to hold. A store may not know that of
// one that can't be used, which is replaced whatever it is.
func pin(r *v1alpha1.ApplyResult) string {
	switch {
	case r.GetRevision() != "":
		return r.GetRevision()
	case r.GetUnusable() == "":
		return configstore.Absent
	}
	return ""
}

// applyPage writes what was shown, unless it is not there any more as it was.
func applyPage(r *request) (*content, error) {
	if r.Download {
		return nil, refuse(http.StatusForbidden, "this console writes nothing: download what was planned")
	}
	if r.PostFormValue("delete") != "" {
		return applyDelete(r)
	}
	v := &plan{Text: r.text(), Done: true}
	shown := &content{Page: v, Title: "Applied", Command: "isthmus apply -f FILE --diff"}
	manifests := v.read()
	if manifests == nil {
		shown.Status = http.StatusBadRequest
		return shown, nil
	}
	objects, pins := applied(manifests), r.PostForm["pin"]
	if len(pins) != len(objects) {
		return nil, refuse(http.StatusBadRequest, "this is not what was shown: %d objects, and revisions of %d; plan it again", len(objects), len(pins))
	}
	for i := range objects {
		objects[i].IfRevision = pins[i]
	}
	answer, err := v1alpha1.NewObjectsClient(r.Conn).Apply(r.ctx, &v1alpha1.ApplyRequest{Objects: objects})
	if err != nil {
		v.Done = false
		return v.refused(r, shown, manifests, err)
	}
	return shown, v.take(answer, false, r)
}

func applyDelete(r *request) (*content, error) {
	key, err := keyNamed(r.PostFormValue("delete"))
	if err != nil {
		return nil, err
	}
	pins := r.PostForm["pin"]
	if len(pins) != 1 {
		return nil, refuse(http.StatusBadRequest, "this is not what was shown: 1 object, and revisions of %d; plan it again", len(pins))
	}
	v := &plan{Delete: &key, Done: true}
	shown := &content{Page: v, Title: "Deleted", Command: "isthmus delete " + kindOf(key) + " " + key.NamespacedName()}
	answer, err := v1alpha1.NewObjectsClient(r.Conn).Delete(r.ctx, &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{wire.Key(key)}, IfRevisions: pins})
	if err != nil {
		v.Done, shown.Title = false, "Plan"
		return v.refused(r, shown, nil, err)
	}
	return shown, v.take(answer, false, r)
}

// effectsCaption is the caption of lookups that a change turns.
func effectsCaption(a *v1alpha1.ApplyResponse) string {
	caption := "Lookups that would end in another way"
	if more := a.GetEffectsLeftOut(); more > 0 {
		caption += fmt.Sprintf("; %d more are not listed", more)
	}
	return caption
}

// download answers with a plan's objects as a file, for a repository that they are applied from.
func (c *Console) download(w http.ResponseWriter, r *http.Request) {
	q := &request{Request: r, Console: c}
	v := &plan{Text: q.text()}
	manifests := v.read()
	if manifests == nil {
		http.Error(w, "the text has mistakes: "+v.Mistakes[0].Text, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Disposition", `attachment; filename="isthmus.yaml"`)
	for i, m := range manifests {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		_, _ = w.Write(api.EncodeYAML(m.Object))
	}
}
