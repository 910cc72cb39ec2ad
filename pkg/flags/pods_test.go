package flags_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// announcing runs a process with its flags until stop.
func announcing(t *testing.T, f *flags.Flags, instance string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- f.Run(ctx, nil) }()
	go func() {
		done <- f.Announce(ctx, flags.Self{Flag: flags.PushDispatch, Instance: instance, Role: "poll"})
	}()
	return func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	}
}

func TestPodsTellWhatTheyGoByAndSinceWhen(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		look := func() map[string]flags.Pod {
			pods, err := flags.PodsOf(t.Context(), p, flags.PushDispatch, "id")
			require.NoError(t, err)
			byName := map[string]flags.Pod{}
			for _, pod := range pods {
				byName[pod.Instance] = pod
			}
			return byName
		}
		s.Exec(t, `INSERT INTO mq_flag_seen VALUES ('push-dispatch', 'id', 'long gone', 'poll', 1, '', '2020-01-01', '2020-01-01')`)
		cfg := flags.Config{Refresh: 100 * time.Millisecond}
		stopFollower := announcing(t, open(t, p, cfg), "follower")
		cfg.PushDispatch = no()
		stopStubborn := announcing(t, open(t, p, cfg), "stubborn")
		testenv.Eventually(t, 10*time.Second, "both speak", func() bool { return len(look()) == 2 })
		require.Equal(t, flags.SourceDefault, look()["follower"].GoesBy)
		require.Zero(t, s.QueryInt(t, "SELECT COUNT(*) FROM mq_flag_seen WHERE instance = 'long gone'"), "dead pods age out")

		set(t, p, flags.Change{Country: "my", Enabled: true})
		row := set(t, p, flags.Change{Enabled: true, BasisPoints: flags.FullRollout})
		testenv.Eventually(t, 10*time.Second, "both have seen the change", func() bool {
			pods := look()
			return !pods["follower"].Lags(row.Version) && !pods["stubborn"].Lags(row.Version)
		})
		require.Equal(t, flags.SourceRow, look()["follower"].GoesBy)
		require.Equal(t, flags.SourceEnvOff, look()["stubborn"].GoesBy, "seen, and not followed")
		require.Equal(t, "poll", look()["follower"].Role)

		// A sign of life does not move the time since when.
		s.Exec(t, "UPDATE mq_flag_seen SET since = since - INTERVAL 1 HOUR, seen_at = seen_at - INTERVAL 40 SECOND")
		testenv.Eventually(t, 30*time.Second, "a sign of life without news", func() bool { return look()["follower"].Seen < 15*time.Second })
		require.Greater(t, look()["follower"].Since, 50*time.Minute)
		row = set(t, p, flags.Change{Enabled: false})
		testenv.Eventually(t, 10*time.Second, "the next version", func() bool { return !look()["follower"].Lags(row.Version) })
		require.Less(t, look()["follower"].Since, 50*time.Minute)

		stopFollower()
		require.NotContains(t, look(), "follower", "who ends politely is not waited for")
		stopStubborn()
	})
}

// A pod of this version beside a schema that does not have the table yet works on.
func TestAPodWithoutTheTableGoesOn(t *testing.T) {
	s := testenv.MariaDB(t)
	p := pool(t, s)
	s.Exec(t, "DROP TABLE mq_flag_seen")
	f := open(t, p, flags.Config{Refresh: 100 * time.Millisecond})
	stop := announcing(t, f, "early")
	set(t, p, flags.Change{Enabled: true, BasisPoints: flags.FullRollout})
	testenv.Eventually(t, 10*time.Second, "the flag is on", func() bool { return f.Get(flags.PushDispatch).Enabled })
	time.Sleep(1500 * time.Millisecond) // one try to announce at least
	stop()
}
