package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// A full table gets the claim index too while four writers insert. Promised is that none of
// them waits longer than a second.
func TestAMissingClaimIndexIsAddedWithoutBlockingWriters(t *testing.T) {
	const promised = time.Second
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		s.Exec(t, strings.Replace(appTable, ",\n  KEY idx_status_created (status, created_at)", "", 1))
		rows := testenv.Scale(20_000, 1_000_000)
		fillAppTable(t, s, rows)

		var writing sync.WaitGroup
		var end atomic.Bool
		longest, written := make([]time.Duration, 4), make([]int, 4)
		failed := make([]error, 4)
		for w := range longest {
			writing.Go(func() {
				for !end.Load() && failed[w] == nil {
					began := time.Now()
					_, failed[w] = s.DB.ExecContext(t.Context(), `INSERT INTO outbox_event
						(id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
						VALUES (?, ?, 'PUSH_DISPATCH', 'push_task', '1', '{}', NOW())`,
						fmt.Sprintf("obew%d-%d", w, written[w]), fmt.Sprintf("push:w%d-%d", w, written[w]))
					longest[w] = max(longest[w], time.Since(began))
					written[w]++
				}
			})
		}
		_, err := migrations.Up(t.Context(), p)
		end.Store(true)
		writing.Wait()
		require.NoError(t, err)
		require.NoError(t, errors.Join(failed...))
		require.NoError(t, migrations.Check(t.Context(), p))
		total := 0
		for w := range longest {
			require.Positive(t, written[w], "writer %d", w)
			require.Less(t, longest[w], 3*promised, "writer %d", w)
			total += written[w]
		}
		require.EqualValues(t, rows+total, s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
		t.Logf("%d rows: %d inserts meanwhile, the longest waits of the writers: %v", rows, total, longest)
	})
}

// fillAppTable doubles the table until it has so many published rows.
func fillAppTable(t *testing.T, s *testenv.Schema, rows int) {
	t.Helper()
	s.Exec(t, `INSERT INTO outbox_event VALUES ('obe0', 'push:0', 'PUSH_DISPATCH', 'push_task', '1', ?, 'PUBLISHED', 0, NOW(), NOW())`,
		strings.Repeat("x", 400))
	for n := 1; n < rows; {
		more := min(n, rows-n, 50_000)
		s.Exec(t, fmt.Sprintf(`INSERT INTO outbox_event SELECT CONCAT('obe', n + %[1]d), CONCAT('push:', n + %[1]d), event_type, aggregate_type,
			aggregate_id, payload_json, status, retry_count, created_at, published_at
			FROM (SELECT CAST(SUBSTR(id, 4) AS SIGNED) AS n, outbox_event.* FROM outbox_event) t WHERE n < %[2]d`, n, more))
		n += more
	}
}
