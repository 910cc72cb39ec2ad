package migrations_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// appTable is outbox_event as the app itself creates it.
const appTable = `CREATE TABLE outbox_event (
  id VARCHAR(64) PRIMARY KEY,
  event_id VARCHAR(64) NOT NULL,
  event_type VARCHAR(64) NOT NULL,
  aggregate_type VARCHAR(32) NOT NULL,
  aggregate_id VARCHAR(64) NOT NULL,
  payload_json TEXT NOT NULL,
  status VARCHAR(16) NOT NULL DEFAULT 'PENDING',
  retry_count INT NOT NULL DEFAULT 0,
  created_at DATETIME NOT NULL,
  published_at DATETIME NULL,
  UNIQUE KEY uk_event_id (event_id),
  KEY idx_status_created (status, created_at)
)`

func pool(t *testing.T, s *testenv.Schema) *sql.DB {
	t.Helper()
	p, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: "+00:00", MaxOpen: 8, DialTimeout: 5 * time.Second, IOTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestUpMakesEverythingAndAgainNothing(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		require.ErrorIs(t, migrations.Check(t.Context(), p), migrations.ErrPending)
		require.EqualValues(t, 0, s.QueryInt(t, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"), "checking writes nothing")
		done, err := migrations.Up(t.Context(), p)
		require.NoError(t, err)
		require.NotEmpty(t, done)
		require.NoError(t, migrations.Check(t.Context(), p))
		done, err = migrations.Up(t.Context(), p)
		require.NoError(t, err)
		require.Empty(t, done)
		steps, err := migrations.Status(t.Context(), p)
		require.NoError(t, err)
		for _, step := range steps {
			require.True(t, step.Applied, step.Name)
		}
	})
}

func TestTwoJobsAtOnceDoTheWorkOnce(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		var wg sync.WaitGroup
		results := make(chan []string, 2)
		for range 2 {
			wg.Go(func() {
				done, err := migrations.Up(t.Context(), p)
				if err != nil {
					t.Error(err)
				}
				results <- done
			})
		}
		wg.Wait()
		steps, err := migrations.Status(t.Context(), p)
		require.NoError(t, err)
		require.Len(t, append(<-results, <-results...), len(steps))
	})
}

func TestTheAppsTableIsAdoptedInPlace(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		s.Exec(t, appTable)
		var rows []string
		for i := range 1000 {
			rows = append(rows, fmt.Sprintf("('obe%d', 'push:%d', 'PUSH_DISPATCH', 'push_task', '%d', '{}', 'PUBLISHED', 0, NOW(), NOW())", i, i, i))
		}
		s.Exec(t, "INSERT INTO outbox_event VALUES "+strings.Join(rows, ","))
		before := tableID(t, s)

		require.ErrorContains(t, migrations.Check(t.Context(), p), "ADD COLUMN available_at")
		done, err := migrations.Up(t.Context(), p)
		require.NoError(t, err)
		var instant int
		for _, d := range done {
			if strings.Contains(d, "ALGORITHM=INSTANT") {
				instant++
			}
		}
		require.Equal(t, 5, instant, "%q", done)
		require.EqualValues(t, 1000, s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
		require.Equal(t, before, tableID(t, s), "the table was not rebuilt")
		require.EqualValues(t, 0, s.QueryInt(t, "SELECT datetime_precision FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'outbox_event' AND column_name = 'created_at'"),
			"the app's own columns stay as they are")
		s.Exec(t, "INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at) VALUES ('obex', 'push:x', 'PUSH_DISPATCH', 'push_task', 'x', '{}', NOW())")
		require.NoError(t, migrations.Check(t.Context(), p))
	})
}

// tableID changes when a table is rebuilt.
func tableID(t *testing.T, s *testenv.Schema) int64 {
	view := "innodb_sys_tables"
	if s.Kind == testenv.KindMySQL {
		view = "innodb_tables"
	}
	return s.QueryInt(t, "SELECT table_id FROM information_schema."+view+" WHERE name = ?", s.Name+"/outbox_event")
}

func TestAWriterThatHoldsTheTableMakesTheChangeGiveUpSoon(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		s.Exec(t, appTable)
		tx, err := s.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "UPDATE outbox_event SET retry_count = 1")
		require.NoError(t, err)
		began := time.Now()
		_, err = migrations.Adopt(t.Context(), p)
		require.ErrorContains(t, err, "run `relay migrate` again")
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

func TestAnotherTableOfThatNameIsRefused(t *testing.T) {
	s := testenv.MariaDB(t)
	s.Exec(t, "CREATE TABLE outbox_event (id INT PRIMARY KEY)")
	_, err := migrations.Up(t.Context(), pool(t, s))
	require.ErrorIs(t, err, migrations.ErrNotOutbox)
	require.ErrorContains(t, err, "payload_json")
}
