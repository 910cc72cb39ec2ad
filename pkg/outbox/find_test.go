package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

func TestFindLooksEverywhere(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		store := outbox.NewStore(b.pool)
		find := func(id string) []outbox.Sighting {
			found, err := store.Find(t.Context(), id)
			require.NoError(t, err)
			return found
		}
		require.Empty(t, find("e:1"))
		b.append(t, someEvent("e:1"), someEvent("e:2"))
		got := find("e:1")
		require.Len(t, got, 1)
		require.Equal(t, []any{"outbox_event", outbox.StatusPending, event.PushDispatch, "push_task", "1"},
			[]any{got[0].Table, got[0].State, got[0].Type, got[0].Aggregate, got[0].AggregateID})
		require.WithinDuration(t, time.Now(), got[0].Written, time.Minute)
		require.Nil(t, got[0].Published)

		b.failAll(t)
		require.Equal(t, "refused: x", find("e:1")[0].Why)
		require.NotNil(t, find("e:1")[0].Next)
		_, err := store.Discard(t.Context(), outbox.Filter{Status: outbox.StatusFailed, EventID: "e:1"}, act)
		require.NoError(t, err)
		got = find("e:1")
		require.Len(t, got, 1)
		require.Equal(t, "DISCARDED", got[0].State)
		require.Equal(t, "ops: broker was cleared; refused: x", got[0].Why)

		b.Exec(t, `INSERT INTO mq_delayed_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, due_at, created_at)
			VALUES ('d', 'e:3', 'T', 'a', '3', '{}', '2030-01-01', '2020-01-01')`)
		require.Equal(t, "DELAYED", find("e:3")[0].State)
		require.NoError(t, outbox.NewDeadLetterStore(b.pool).StoreDeadLetter(t.Context(), event.DeadLetter{
			Group: "g", Topic: "t", Tag: "PUSH_DISPATCH", EventID: "e:2", Body: []byte("{}"), Attempts: 3, Reason: "too many attempts", LastError: "x",
		}))
		got = find("e:2")
		require.Len(t, got, 2)
		require.Equal(t, []any{"mq_dead_letter", outbox.DeadOpen, "g", 3, "too many attempts: x"},
			[]any{got[1].Table, got[1].State, got[1].Group, got[1].Attempts, got[1].Why})
	})
}
