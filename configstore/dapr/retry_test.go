package dapr

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// TestPostgresThatRefusesARowEachTime says why, and is not asked for half a minute.
func TestPostgresThatRefusesARowEachTime(t *testing.T) {
	p := startPostgres(t)
	database := p.newDatabase(t)
	p.exec(t, database, "CREATE UNIQUE INDEX one_version ON configtable (version)")
	s := opened(t, told(yamlOf(t, kindPostgres, p.settings(database, writerUser, postgresPassword)), ""))
	begin := time.Now()
	_, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "a")})
	if err == nil || !strings.Contains(err.Error(), "one_version") || time.Since(begin) > 20*time.Second {
		t.Errorf("write: %v after %s; want the server's reason, soon", err, time.Since(begin))
	}
}
