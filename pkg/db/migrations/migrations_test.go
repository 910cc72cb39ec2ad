package migrations_test

import (
	"database/sql"
	"fmt"
	"slices"
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

func TestJobsAtOnceDoTheWorkOnce(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		var wg sync.WaitGroup
		results := make(chan []string, 3)
		for range 3 {
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
		require.Len(t, slices.Concat(<-results, <-results, <-results), len(steps))
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

// Nothing but a copy of every row gives these tables another column. It is left to a
// person, with the statement, and what a person ran is done for the next migration.
func TestAStepThatWouldRebuildTheTableIsRefused(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		cases := map[string]func(s *testenv.Schema){
			"compressed": func(s *testenv.Schema) { s.Exec(t, "ALTER TABLE outbox_event ROW_FORMAT=COMPRESSED") },
		}
		if s.Kind == testenv.KindMySQL {
			cases["no instant change is left"] = func(s *testenv.Schema) {
				for i := range 300 { // it makes 64 of them, newer versions 255
					if _, err := s.DB.ExecContext(t.Context(), fmt.Sprintf("ALTER TABLE outbox_event ADD COLUMN theirs%d INT NULL, ALGORITHM=INSTANT", i)); err != nil {
						require.ErrorContains(t, err, "4092")
						return
					}
				}
				t.Fatal("the server makes as many as one likes")
			}
		}
		for name, prepare := range cases {
			t.Run(name, func(t *testing.T) {
				s := testenv.NewSchema(t, s.Server)
				s.Exec(t, appTable)
				s.Exec(t, "INSERT INTO outbox_event VALUES ('obe1', 'push:1', 'PUSH_DISPATCH', 'push_task', '1', '{}', 'PENDING', 0, NOW(), NULL)")
				prepare(s)
				p := pool(t, s)
				before := tableID(t, s)
				_, err := migrations.Up(t.Context(), p)
				require.ErrorIs(t, err, migrations.ErrNeedsPerson)
				require.Equal(t, before, tableID(t, s), "the table was rebuilt")
				for try := 0; err != nil && try < 5; try++ {
					_, statement, found := strings.Cut(err.Error(), "again: ")
					require.True(t, found, "%v", err)
					require.Regexp(t, `^ALTER TABLE outbox_event ADD COLUMN [a-z_]+ [A-Z]+\(\d+\) NULL;$`, statement)
					require.ErrorIs(t, migrations.Check(t.Context(), p), migrations.ErrPending)
					s.Exec(t, statement)
					_, err = migrations.Up(t.Context(), p)
				}
				require.NoError(t, err)
				require.NoError(t, migrations.Check(t.Context(), p))
			})
		}
	})
}

// What the servers make of our DDL is the same, read off their catalogues.
func TestBothServersGetTheSameSchema(t *testing.T) {
	schemas := map[testenv.Kind]string{}
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		_, err := migrations.Up(t.Context(), pool(t, s))
		require.NoError(t, err)
		schemas[s.Kind] = catalogue(t, s)
	})
	require.Greater(t, strings.Count(schemas[testenv.KindMySQL], "\n"), 150, "it was read")
	require.Equal(t, schemas[testenv.KindMySQL], schemas[testenv.KindMariaDB])
	require.NotContains(t, schemas[testenv.KindMySQL], "_ci ", "ids differ where their bytes do")
}

// catalogue lists columns and indexes, with what is only spelt differently made alike.
func catalogue(t *testing.T, s *testenv.Schema) string {
	t.Helper()
	rows, err := s.DB.QueryContext(t.Context(), `
		SELECT CONCAT_WS(' ', table_name, column_name, data_type, is_nullable, IF(column_type LIKE '%unsigned%', 'unsigned', ''),
			'length', COALESCE(character_maximum_length, ''), 'precision', COALESCE(datetime_precision, ''), COALESCE(collation_name, ''),
			'default', COALESCE(NULLIF(REPLACE(column_default, CHAR(39), ''), 'NULL'), ''), extra)
		FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name NOT LIKE 'mq_schema_%'
		UNION ALL
		SELECT CONCAT_WS(' ', 'index', table_name, index_name, non_unique, seq_in_index, column_name)
		FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name NOT LIKE 'mq_schema_%'`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	var lines []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		lines = append(lines, strings.ToLower(line))
	}
	require.NoError(t, rows.Err())
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestAnotherTableOfThatNameIsRefused(t *testing.T) {
	s := testenv.MariaDB(t)
	s.Exec(t, "CREATE TABLE outbox_event (id INT PRIMARY KEY)")
	_, err := migrations.Up(t.Context(), pool(t, s))
	require.ErrorIs(t, err, migrations.ErrNotOutbox)
	require.ErrorContains(t, err, "payload_json")
}
