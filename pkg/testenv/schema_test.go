package testenv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestSchemaIsEmptyOwnAndStrict(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		other := testenv.NewSchema(t, s.Server)
		require.NotEqual(t, s.Name, other.Name)

		s.LoadApp(t)
		s.Exec(t, "INSERT INTO push_messages (id, user_id, title, body, due_at) VALUES (?, 'u', 't', 'b', NOW(3))", "p1")
		require.EqualValues(t, 1, s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE status = 'PENDING'"))
		require.Zero(t, other.QueryInt(t, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ?", other.Name))

		_, err := s.DB.Exec("INSERT INTO push_messages (id, user_id, title, body, due_at) VALUES ('p2', 'u', 't', 'b', '0000-00-00')")
		require.Error(t, err, "sql_mode must be as strict as production's")
		require.Zero(t, s.QueryInt(t, "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())"))
	})
}
