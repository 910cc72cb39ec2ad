package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Settings that exclude each other are named, with their keys, all at once.
func TestSettingsThatDoNotFit(t *testing.T) {
	good := Config{
		Endpoint: "https://a.example", AuthEndpoint: "https://b.example", APITimeout: 8 * time.Second, LinkTimeout: 5 * time.Second,
		Slice: 12 * time.Second, Lease: time.Minute, RetryBase: time.Second, RetryMax: time.Minute, APIRate: 5, APIRateMax: 50,
	}
	good.MQ.Provider, good.MQ.Bus.HandlerTimeout = "redis-streams", 30*time.Second
	require.NoError(t, good.Validate())
	for want, spoil := range map[string]func(c *Config){
		"SEAHUB_BUS_HANDLER_TIMEOUT (seahub.bus.handler-timeout) is 30s, it must be at least 43s": func(c *Config) { c.Slice = 30 * time.Second },
		"SEAHUB_CAMPAIGN_LEASE (seahub.campaign.lease) is 20s, it must be at least 25s":           func(c *Config) { c.Lease = 20 * time.Second },
		"SEAHUB_CAMPAIGN_RETRY_MAX":         func(c *Config) { c.RetryMax = time.Millisecond },
		"SEAHUB_TIKTOK_RATE_MAX":            func(c *Config) { c.APIRateMax = 1 },
		"SEAHUB_TIKTOK_ENDPOINT":            func(c *Config) { c.Endpoint = "ftp://x" },
		"SEAHUB_TIKTOK_AUTH_ENDPOINT":       func(c *Config) { c.AuthEndpoint = "" },
		"SEAHUB_CAMPAIGN_LINK_TEST_ADDRESS": func(c *Config) { c.LinkTestAddress = "10.0.0.1:80" },
	} {
		c := good
		spoil(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	for address, loopback := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "127.0.0.1": false, "localhost:1": false, "8.8.8.8:1": false} {
		require.Equal(t, loopback, isLoopback(address), address)
	}
}
