package up

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// probeTime is the patience with one part of the system.
	probeTime = 2 * time.Second
	// watchEvery is how often the supervisor looks at the servers.
	watchEvery = 2 * time.Second
)

// part is one part of a running system and how it is: "" is well.
type part struct {
	name, trouble string
}

// probeServers asks the servers whether they do what they are there for.
func probeServers(ctx context.Context, s State) []part {
	parts := []part{
		{"MariaDB", troubleOf(probeMariaDB(ctx, s.DSN))},
		{"Redis", troubleOf(probeRedis(ctx, s.Redis))},
		{"FCM fake", troubleOf(probeFCM(ctx, s.FCM))},
	}
	return parts
}

func troubleOf(err error) string {
	if err == nil {
		return ""
	}
	return "does not answer: " + err.Error()
}

func probeMariaDB(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var one int
	return db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// probeRedis speaks the few bytes that it takes.
func probeRedis(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(answer, "+PONG") {
		return fmt.Errorf("says %q", strings.TrimSpace(answer))
	}
	return nil
}

// probeFCM takes any answer for a sign of life.
func probeFCM(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// probeService asks a service how it is.
func probeService(ctx context.Context, s ServiceState) string {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Admin+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "does not answer"
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "not ready: " + resp.Status
	}
	return ""
}

// watchServers says when a server stops answering, and when it answers again. Nothing is
// started again, so that its end shows.
func (s *supervisor) watchServers(ctx context.Context) {
	last := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
		for _, p := range probeServers(ctx, s.state) {
			if ctx.Err() != nil {
				return
			}
			if down := p.trouble != ""; down != last[p.name] {
				last[p.name] = down
				s.say("%s %s", p.name, orElse(p.trouble, "answers again"))
			}
		}
	}
}
