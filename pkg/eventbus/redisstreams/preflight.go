package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// How often the server's settings are looked at: they change under a running process,
// and a failover brings another server.
const (
	lookEvery = 30 * time.Second
	// lookAgain is the pace while something is refused: who has put it right waits.
	lookAgain = time.Second
)

// finding is a setting of the server with which events can be lost.
type finding struct {
	setting string // the label of the gauge
	text    string
	// Publishing, or consuming, is refused because of it.
	noPublish, noConsume bool
}

// settings are all labels of the gauge, so that each has a zero.
var settings = []string{"maxmemory-policy", "appendonly", "min-replicas-to-write", "role", "version"}

// preflight keeps an eye on the server's settings.
type preflight struct {
	cmd           redis.UniversalClient
	timeout       time.Duration
	allowEviction bool
	log           zerolog.Logger
	metrics       *metrics

	looking sync.Mutex // held over a look; nobody waits for it

	mu       sync.Mutex
	next     time.Time
	findings []finding
}

// look reads the settings when they have not been for a while. An error says that the
// server gave no answer; one that does not tell its settings is no reason for anything.
func (p *preflight) look(ctx context.Context) error {
	if !p.due() || !p.looking.TryLock() {
		return nil
	}
	defer p.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	infos, err := p.ask(ctx)
	if err != nil {
		if _, answered := classify(err); !answered {
			return fmt.Errorf("ask redis for its settings: %w", wrapClosed(err))
		}
		p.learned(nil, false)
		return nil
	}
	var all []finding
	for _, info := range infos {
		all = append(all, findings(parseInfo(info), p.allowEviction)...)
	}
	p.learned(all, true)
	return nil
}

func (p *preflight) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !time.Now().Before(p.next)
}

// ask returns what each master says of itself.
func (p *preflight) ask(ctx context.Context) ([]string, error) {
	cluster, ok := p.cmd.(*redis.ClusterClient)
	if !ok {
		info, err := p.cmd.Info(ctx).Result()
		return []string{info}, err
	}
	masters, err := clusterMasters(ctx, cluster)
	infos := make([]string, 0, len(masters))
	for _, m := range masters {
		info, e := m.Info(ctx).Result()
		infos, err = append(infos, info), errors.Join(err, e)
	}
	return infos, err
}

// learned takes the findings of a look, logs what is new and what is gone, and sets
// the gauge; unless known the server did not tell, and what it told before is void.
func (p *preflight) learned(now []finding, known bool) {
	var once []finding // the masters of a Cluster may all say the same
	for _, f := range now {
		if !slices.Contains(once, f) {
			once = append(once, f)
		}
	}
	now = once
	p.mu.Lock()
	before := p.findings
	p.findings = now
	p.next = time.Now().Add(lookEvery)
	if slices.ContainsFunc(now, func(f finding) bool { return f.noPublish || f.noConsume }) {
		p.next = time.Now().Add(lookAgain)
	}
	p.mu.Unlock()
	for _, f := range now {
		if !slices.Contains(before, f) {
			p.log.Warn().Str("setting", f.setting).Msg(f.text)
		}
	}
	for _, f := range before {
		if !slices.Contains(now, f) {
			p.log.Info().Str("setting", f.setting).Msg("no longer: " + f.text)
		}
	}
	for _, s := range settings {
		if !known {
			p.metrics.unsafe.DeleteLabelValues(s)
			continue
		}
		v := 0.0
		if slices.ContainsFunc(now, func(f finding) bool { return f.setting == s }) {
			v = 1
		}
		p.metrics.unsafe.WithLabelValues(s).Set(v)
	}
}

func (p *preflight) refusal(of func(finding) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.findings {
		if of(f) {
			return errors.New(f.text)
		}
	}
	return nil
}

// publish returns why nothing is published: the server did not answer, or it may throw
// away what it confirms. The events are safe where they are.
func (p *preflight) publish(ctx context.Context) error {
	if err := p.look(ctx); err != nil {
		return err
	}
	return p.refusal(func(f finding) bool { return f.noPublish })
}

// consume returns why nothing can be consumed.
func (p *preflight) consume(ctx context.Context) error {
	if err := p.look(ctx); err != nil {
		return err
	}
	return p.refusal(func(f finding) bool { return f.noConsume })
}

func (p *preflight) warnings() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, f := range p.findings {
		out = append(out, f.text)
	}
	return out
}

// Warnings names settings of the server with which events can be lost, as they were
// when they were last looked at.
func (d *Driver) Warnings() []string { return d.preflight.warnings() }

func parseInfo(info string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// findings names what is wrong with a server, and the way out. What a server does not
// tell is not held against it.
func findings(info map[string]string, allowEviction bool) []finding {
	var out []finding
	var major, minor int
	if _, err := fmt.Sscanf(info["redis_version"], "%d.%d", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 2) {
		out = append(out, finding{setting: "version", noConsume: true,
			text: fmt.Sprintf("redis %s is too old to consume from: messages of dead members and retries need 6.2 or later", info["redis_version"])})
	}
	switch policy := info["maxmemory_policy"]; {
	case strings.HasPrefix(policy, "allkeys-") && !allowEviction:
		out = append(out, finding{setting: "maxmemory-policy", noPublish: true,
			text: fmt.Sprintf("nothing is published to a redis that may evict whole streams: maxmemory-policy is %s, set noeviction there, or SEAHUB_REDIS_ALLOW_EVICTION (seahub.redis.allow-eviction) here", policy)})
	case strings.HasPrefix(policy, "allkeys-"):
		out = append(out, finding{setting: "maxmemory-policy",
			text: fmt.Sprintf("redis may evict whole streams with their groups: maxmemory-policy is %s, set noeviction", policy)})
	case policy != "" && policy != "noeviction":
		out = append(out, finding{setting: "maxmemory-policy",
			text: fmt.Sprintf("redis evicts keys that expire, though no streams: maxmemory-policy is %s, set noeviction", policy)})
	}
	if info["aof_enabled"] == "0" {
		out = append(out, finding{setting: "appendonly", text: "redis loses confirmed events with a restart: set appendonly yes"})
	}
	role := info["role"]
	if role != "" && role != "master" {
		out = append(out, finding{setting: "role", text: fmt.Sprintf("redis is a %s: it takes no event and serves no group, check the address", role)})
	}
	// The line about good replicas is there only while the setting is.
	if _, guarded := info["min_slaves_good_slaves"]; role == "master" && !guarded && info["connected_slaves"] != "0" && info["connected_slaves"] != "" {
		out = append(out, finding{setting: "min-replicas-to-write", text: "redis confirms events that no replica has, a failover may lose them: set min-replicas-to-write 1"})
	}
	return out
}
