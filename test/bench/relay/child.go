package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/test/bench/internal/meter"
)

// stopLimit bounds the polite end of a relay.
const stopLimit = 30 * time.Second

// relays are running relay processes.
type relays []*testenv.Child

// startRelays starts n relays that all work. It does not wait for them.
func (b *bed) startRelays(n int) (rs relays, err error) {
	env := map[string]string{
		"SEAHUB_ENV": env, "SEAHUB_COUNTRY": country,
		"SEAHUB_DB_DSN": b.dsn, "SEAHUB_DB_TIME_ZONE": zone,
		"SEAHUB_ADMIN_ADDR": "127.0.0.1:0", "SEAHUB_ADMIN_PPROF": "true",
		"SEAHUB_RELAY_SLOTS": strconv.Itoa(n), "SEAHUB_RELAY_BATCH_ROWS": strconv.Itoa(b.Batch),
		"PATH": os.Getenv("PATH"),
	}
	b.topic.configure(env)
	pairs := make([]string, 0, len(env))
	for k, v := range env {
		pairs = append(pairs, k+"="+v)
	}
	for i := range n {
		c, err := testenv.StartChild(testenv.ChildSpec{
			Path: b.binary, Env: pairs, Dir: b.logs, Log: filepath.Join(b.logs, fmt.Sprintf("relay-%d.log", i+1)),
		})
		if err != nil {
			return nil, errors.Join(err, rs.stop())
		}
		rs = append(rs, c)
	}
	return rs, nil
}

// stop ends them politely, also when the run was interrupted.
func (rs relays) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	errs := make([]error, 0, len(rs))
	for _, c := range rs {
		select {
		case <-c.Done():
			errs = append(errs, fmt.Errorf("a relay ended by itself; its log ends:\n%s", c.LogTail()))
		default:
			errs = append(errs, c.Stop(ctx))
		}
	}
	return errors.Join(errs...)
}

// usage adds up the CPU times and takes the highest peak.
func (rs relays) usage() (sum meter.Usage, err error) {
	for _, c := range rs {
		u, err := meter.Of(c.Pid())
		if err != nil {
			return sum, fmt.Errorf("%w; the relay's log ends:\n%s", err, c.LogTail())
		}
		sum.CPU += u.CPU
		sum.Peak = max(sum.Peak, u.Peak)
	}
	return sum, nil
}

// withRelays runs f beside n relays.
func (b *bed) withRelays(n int, f func(rs relays) error) error {
	rs, err := b.startRelays(n)
	if err != nil {
		return err
	}
	return errors.Join(f(rs), rs.stop())
}
