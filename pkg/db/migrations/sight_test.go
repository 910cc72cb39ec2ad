package migrations_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// An account that may alter the app's table and not read it sees no column of it. That
// must not pass for a table which lacks nothing.
func TestAnAccountThatSeesNoColumnsIsRefused(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		s.Exec(t, "CREATE TABLE outbox_event (id VARCHAR(64) PRIMARY KEY)")
		user := strings.TrimPrefix(s.Name[len(s.Name)-12:], "_")
		s.Exec(t, "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'x'")
		t.Cleanup(func() { s.Exec(t, "DROP USER '"+user+"'@'%'") })
		s.Exec(t, "GRANT CREATE, ALTER, INDEX ON * TO '"+user+"'@'%'")
		_, address, _ := strings.Cut(s.DSN, "@")
		pool, err := sql.Open("mysql", user+":x@"+address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close() })

		done, err := migrations.Up(t.Context(), pool)
		require.ErrorIs(t, err, migrations.ErrNoSight)
		require.Empty(t, done)
		require.ErrorIs(t, migrations.Check(t.Context(), pool), migrations.ErrNoSight)
		require.EqualValues(t, 1, s.QueryInt(t, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"), "nothing was made")
	})
}
