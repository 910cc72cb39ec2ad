package provider_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq"
)

func TestNoProviderIsNotAnErrorOfConfiguration(t *testing.T) {
	if err := (provider.Config{}).Validate(); err != nil {
		t.Errorf("an empty configuration is invalid: %v", err)
	}
	if _, err := provider.Open(provider.Config{}, "id-test", "id", zerolog.Nop()); !errors.Is(err, provider.ErrNotConfigured) {
		t.Errorf("Open returned %v", err)
	}
}

// Nobody listens at these addresses; opening does not ask.
func TestOpenDoesNotDial(t *testing.T) {
	for _, cfg := range []provider.Config{
		{Provider: provider.RedisStreams, Redis: redisstreams.Config{Addresses: []string{"127.0.0.1:1"}, Timeout: 200 * time.Millisecond}},
		{Provider: provider.RocketMQ, RocketMQ: rocketmq.Config{NameServers: []string{"127.0.0.1:1"}}},
	} {
		b, err := provider.Open(cfg, "id-test", "id", zerolog.Nop(), eventbus.WithRegisterer(prometheus.NewRegistry()))
		if err != nil {
			t.Errorf("%s: %v", cfg.Provider, err)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if cfg.Provider == provider.RedisStreams {
			err := b.Publisher().Publish(ctx, eventbus.Topic("id"), "PUSH_DISPATCH", "push:1", []byte("{}"))
			var pe *eventbus.PublishError
			if !errors.As(err, &pe) || pe.Status != eventbus.Unavailable {
				t.Errorf("publishing without a broker: %v", err)
			}
		}
		if err := b.Close(ctx); err != nil {
			t.Errorf("%s: close: %v", cfg.Provider, err)
		}
		cancel()
	}
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	for want, cfg := range map[string]provider.Config{
		"SEAHUB_MQ_PROVIDER":           {Provider: "kafka"},
		"SEAHUB_REDIS_MASTER_NAME":     {Provider: provider.RedisStreams, Redis: redisstreams.Config{Addresses: []string{"a:1"}, Mode: "sentinel"}},
		"SEAHUB_REDIS_ADDRESSES":       {Provider: provider.RedisStreams},
		"SEAHUB_ROCKETMQ_NAME_SERVERS": {Provider: provider.RocketMQ},
		"SEAHUB_BUS_MAX_RETRY":         {Provider: provider.RedisStreams, Bus: eventbus.Config{MinRetry: 2, MaxRetry: 1}},
	} {
		if _, err := provider.Open(cfg, "id-test", "id", zerolog.Nop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
	withPassword := provider.Config{Provider: provider.RedisStreams, Redis: redisstreams.Config{Addresses: []string{"redis://:hunter2@a:1"}}}
	if err := withPassword.Validate(); err == nil || !strings.Contains(err.Error(), "SEAHUB_REDIS_ADDRESSES") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an address with a password in it: %v", err)
	}
	if _, err := provider.Open(provider.Config{Provider: provider.RedisStreams, Redis: redisstreams.Config{Addresses: []string{"a:1"}}}, "", "", zerolog.Nop()); err == nil {
		t.Error("a bus without env and country was opened")
	}
}
