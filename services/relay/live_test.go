package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

// A relay whose database is away says that it is not ready, and lives: a restart would
// help nothing. It is ready again by itself, and works.
func TestADatabaseThatIsAwayMakesTheRelayUnreadyNotDead(t *testing.T) {
	r := newRig(t)
	shared := r.DSN
	r.Schema = testenv.PrivateMariaDB(t)
	for i := range r.env {
		r.env[i] = strings.Replace(r.env[i], shared, r.DSN, 1)
	}
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	relay := r.run(t)
	ask := func(path string) (status int, body string) {
		at := regexp.MustCompile(`"admin":"([^"]+)"`).FindStringSubmatch(relay.LogTail())
		if at == nil {
			return 0, "it has not started yet"
		}
		client := http.Client{Timeout: 5 * time.Second}
		res, err := client.Get("http://" + at[1] + path)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		text, _ := io.ReadAll(res.Body)
		client.CloseIdleConnections()
		return res.StatusCode, string(text)
	}
	is := func(want int, path, word string) {
		t.Helper()
		testenv.Eventually(t, 3*soon, fmt.Sprint(path, " is ", want), func() bool {
			status, body := ask(path)
			return status == want && strings.Contains(body, word)
		})
	}
	is(200, "/readyz", "")
	require.NoError(t, r.Server.Kill())
	is(503, "/readyz", "database")
	status, body := ask("/livez")
	require.Equal(t, 200, status, body)
	require.NoError(t, r.Server.Start(t.Context()))
	is(200, "/readyz", "")
	r.append(t, "1")
	testenv.Eventually(t, soon, "it works again", func() bool {
		return r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'") == 1
	})
	require.NoError(t, relay.Stop(t.Context()))
	require.Zero(t, relay.ExitCode(), "it never ended")
}
