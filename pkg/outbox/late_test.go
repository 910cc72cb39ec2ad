package outbox_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// Transactions append and stay open, longer than the tail looks back, while others that
// began later commit and are published and a backlog is worked off. Whatever is committed
// at last goes out, once, and what is rolled back does not.
func TestALateCommitIsPublished(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		const pairs, backlog = 20, 3000
		b.pool.SetMaxOpenConns(pairs + 10)
		b.insertAt(t, "backlog", backlog, "NOW(3) - INTERVAL 1 HOUR + INTERVAL (# * 1000) MICROSECOND")
		m := newMemory()
		b.startRelay(t, quick(), m)
		var open []*sql.Tx
		for i := range pairs {
			tx, err := b.pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = outbox.AppendSQL(t.Context(), tx, someEvent(fmt.Sprint("late:", i)))
			require.NoError(t, err)
			open = append(open, tx)
			b.append(t, someEvent(fmt.Sprint("soon:", i)))
		}
		testenv.Eventually(t, soon, "those that were committed are out", func() bool {
			return b.countStatus(t, "PUBLISHED") == backlog+pairs
		})
		time.Sleep(time.Duration(testenv.Scale(4, 360)) * time.Second)
		b.append(t, someEvent("between"))
		for i := len(open) - 1; i >= 0; i-- {
			if i%5 == 0 {
				require.NoError(t, open[i].Rollback())
				continue
			}
			require.NoError(t, open[i].Commit())
		}
		b.allPublished(t, soon)
		require.Len(t, m.recs, backlog+pairs+1+pairs*4/5)
		require.Equal(t, 1, m.mostCalls(), "none is sent twice")
		for i := range pairs {
			_, n := m.count(fmt.Sprint("late:", i))
			require.Equal(t, i%5 != 0, n == 1, "late:%d", i)
		}
	})
}
