package outbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// loadFault is something that happens to a relay's servers while four writers write.
type loadFault struct {
	name       string
	lasts      time.Duration
	begin, end func() error
	// batches is how many batches it may cause to be sent again.
	batches int
}

func (s *privateStage) loadFaults(t *testing.T, proxy *stepProxy) []loadFault {
	var held []*sql.Conn
	other, err := sql.Open("mysql", s.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	do := func(statement string) error { _, err := s.DB.ExecContext(t.Context(), statement); return err }
	redis := func(args ...any) error { return s.redis.Client(t).Do(t.Context(), args...).Err() }
	nothing := func() error { return nil }
	return []loadFault{
		{"database restarted", 0, func() error {
			return errors.Join(s.Server.Restart(t.Context()), s.Server.Restart(t.Context()))
		}, nothing, 4},
		{"database read-only", 2 * time.Second, func() error { return do("SET GLOBAL read_only = 1") },
			func() error { return do("SET GLOBAL read_only = 0") }, 2},
		{"database silent", 4 * time.Second, s.Server.Freeze, s.Server.Thaw, 2},
		{"connections taken", 4 * time.Second, func() error {
			if err := do("SET GLOBAL max_connections = 60"); err != nil {
				return err
			}
			proxy.cutAll() // and who comes back finds no place
			for {
				c, err := other.Conn(t.Context())
				if err != nil {
					return ignoreFull(err)
				}
				held = append(held, c)
			}
		}, func() error {
			_, err := held[0].ExecContext(t.Context(), "SET GLOBAL max_connections = 500")
			for _, c := range held {
				err = errors.Join(err, c.Close())
			}
			return errors.Join(err, other.Close())
		}, 2},
		{"lease deleted", 2 * time.Second, func() error { return do("DELETE FROM mq_lease") },
			func() error { return do("DELETE FROM mq_lease") }, 4},
		{"redis slow", 0, func() (err error) {
			for range 3 {
				err = errors.Join(err, redis("CLIENT", "PAUSE", "800", "ALL"))
				time.Sleep(900 * time.Millisecond)
			}
			return err
		}, nothing, 4},
		{"redis silent", 4 * time.Second, s.redis.Server.Freeze, s.redis.Server.Thaw, 3},
		{"redis restarted", 0, func() error { return s.redis.Server.Restart(t.Context()) }, nothing, 2},
	}
}

func ignoreFull(err error) error {
	if strings.Contains(err.Error(), "1040") {
		return nil
	}
	return err
}

// Whatever happens to the servers while four writers write: every event that they
// committed is with the broker, and what came twice is explained by what happened.
func TestFaultsUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	s := newPrivateStage(t)
	s.Exec(t, "CREATE USER app@'%' IDENTIFIED BY 'secret'") // root is above read_only
	s.Exec(t, "GRANT ALL ON "+s.Name+".* TO app@'%'")
	s.cfg.DSN = strings.Replace(s.DSN, "root@", "app:secret@", 1)
	writers := openBox(t, &testenv.Schema{Server: s.Server, Name: s.Name, DSN: s.cfg.DSN, DB: s.DB}, "+00:00")
	proxy := newStepProxy(t, s.Server.Addr())
	s.spec.DB.DSN = strings.Replace(s.cfg.DSN, s.Server.Addr(), proxy.addr, 1)
	s.spec.Relay.BatchRows = 100
	startChild(t, s.named("relay"))
	n := testenv.Scale(1000, 20_000)
	total, repeated := 0, 0
	for i, f := range s.loadFaults(t, proxy) {
		wait := writers.write(t, fmt.Sprint("f", i), n)
		testenv.Eventually(t, soon, "events flow", func() bool {
			return s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'") >= int64(total+n/10)
		})
		require.NoError(t, f.begin(), f.name)
		time.Sleep(f.lasts)
		require.NoError(t, f.end(), f.name)
		ended := time.Now()
		wait()
		s.allPublished(t, 3*soon)
		total += n
		perEvent, _ := s.sent(t)
		require.Len(t, perEvent, total, "%s: none is lost", f.name)
		again := duplicates(perEvent) - repeated
		repeated += again
		t.Logf("%s: all were out %s after its end, %d came twice", f.name, time.Since(ended).Round(time.Millisecond), again)
		require.LessOrEqual(t, again, f.batches*s.spec.Relay.BatchRows, f.name)
		require.EqualValues(t, total, s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = ? AND retry_count = 0", outbox.StatusPublished), f.name)
	}
}
