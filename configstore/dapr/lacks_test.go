package dapr

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/probe"
)

// daprTrigger notifies as the one in Dapr's documentation does.
const daprTrigger = `CREATE OR REPLACE FUNCTION configtable_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('config', json_build_object('table', TG_TABLE_NAME, 'action', TG_OP, 'data', row_to_json(NEW))::text);
  RETURN NULL;
END $$`

func TestATriggerThatNotifiesWholeRowsIsNamed(t *testing.T) {
	t.Parallel()
	p := startPostgres(t)
	database := p.newDatabase(t)
	s := openStore(t, Config{Component: yamlOf(t, kindPostgres, p.settings(database, writerUser, postgresPassword)), Prefix: newPrefix()}, configstore.Scope{})
	t.Cleanup(func() { _ = s.Close() })
	const remedy = "let it notify the key alone, as the one in docs/reference/stores/dapr.md does"
	lacks := func(want bool) {
		t.Helper()
		result := probe.Run(t.Context(), s, configstore.Scope{}, time.Minute)
		step := result.Steps[len(result.Steps)-1]
		if step.Name != "settings" || (step.Err != nil) != want || want && !strings.Contains(step.Err.Error(), remedy) {
			t.Errorf("step %+v", step)
		}
	}
	lacks(false)
	p.exec(t, database, daprTrigger)
	large := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: "checkout"}}
	for i := range 500 {
		large.Endpoints = append(large.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprint("callee-", i)}})
	}
	_, err := s.Write(t.Context(), configstore.Write{Object: large})
	if err == nil || !strings.Contains(err.Error(), "payload string too long") || !strings.Contains(err.Error(), remedy) {
		t.Errorf("a large object: %v", err)
	}
	lacks(true) // at once, since a write has failed for it
	objects, _, err := s.List(t.Context())
	if err != nil || len(objects) > 0 {
		t.Errorf("a probe has left %d objects (%v)", len(objects), err)
	}
}
