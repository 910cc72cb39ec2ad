package redisstreams

import (
	"context"
	"fmt"
	"strings"
)

// preflight looks once per subscription at settings of the server with which events
// can be lost, and warns. It refuses nothing: the server may be an operator's only
// one, and what is lost of it the outbox can publish again.
func (m *member) preflight(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.d.cfg.Timeout)
	defer cancel()
	info, err := m.d.cmd.Info(ctx).Result()
	if err != nil {
		m.failed("info", err) // not permitted, perhaps
		return
	}
	for _, w := range unsafeSettings(parseInfo(info)) {
		m.log.Warn().Str("stream", m.keys.stream).Msg(w)
	}
}

func parseInfo(info string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// unsafeSettings names what is wrong with a server, and the way out.
func unsafeSettings(info map[string]string) []string {
	var out []string
	var major, minor int
	if _, err := fmt.Sscanf(info["redis_version"], "%d.%d", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 2) {
		out = append(out, fmt.Sprintf("redis %s is too old: messages of dead members and retries need 6.2 or later", info["redis_version"]))
	}
	if p := info["maxmemory_policy"]; p != "" && p != "noeviction" {
		out = append(out, fmt.Sprintf("redis may evict whole streams with their groups: maxmemory-policy is %s, set noeviction", p))
	}
	if info["aof_enabled"] == "0" {
		out = append(out, "redis loses confirmed events with a restart: set appendonly yes")
	}
	if r := info["role"]; r != "" && r != "master" {
		out = append(out, fmt.Sprintf("redis is a %s: groups work on the master only, check the address", r))
	}
	return out
}
