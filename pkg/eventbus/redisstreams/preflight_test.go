package redisstreams_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// A server that may evict streams gets no events: they are safe where they are. What
// it has is consumed all the same, the operator is told, and the setting is looked at
// again without a restart.
func TestNothingIsPublishedToAServerThatEvicts(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.PrivateRedis(t))
	c := r.server.Client(t)
	r.publish(t, r.driver(t, quick(r.server.Addr)), 5, "A")
	set := func(policy string) {
		t.Helper()
		if err := c.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("allkeys-lru")
	reg := prometheus.NewRegistry()
	d := r.driver(t, quick(r.server.Addr), reg)
	one := []driver.Message{{Topic: r.topic(), Tag: "A", Key: "k", Body: []byte("{}")}}
	res := d.Send(t.Context(), one)[0]
	if res.Status != driver.Unavailable || res.Err == nil || !strings.Contains(res.Err.Error(), "noeviction") {
		t.Errorf("published to a server that evicts: %s, %v", res.Status, res.Err)
	}
	if w := strings.Join(d.Warnings(), "; "); !strings.Contains(w, "allkeys-lru") {
		t.Errorf("warnings are %q", w)
	}
	if v := metric(t, reg, "seahub_redis_unsafe_setting"); v != 1 {
		t.Errorf("the gauge is %v", v)
	}
	r.start(t, d, driver.Subscription{}, ack)
	testenv.Eventually(t, patience, "what is there is consumed", func() bool { s := r.state(t, d); return s.Backlog.Known && s.Backlog.N == 0 })

	allowed := quick(r.server.Addr)
	allowed.AllowEviction = true
	if res := r.driver(t, allowed).Send(t.Context(), one)[0]; res.Status != driver.Confirmed {
		t.Errorf("eviction is allowed, and the result is %s, %v", res.Status, res.Err)
	}

	set("noeviction")
	testenv.Eventually(t, patience, "the change is noticed", func() bool { return d.Send(t.Context(), one)[0].Status == driver.Confirmed })
	if v := metric(t, reg, "seahub_redis_unsafe_setting"); v != 0 || len(d.Warnings()) != 0 {
		t.Errorf("the gauge is %v, warnings are %v after the repair", v, d.Warnings())
	}
}

// A user who may not ask for the settings works all the same; what is not known has no
// gauge.
func TestSettingsThatMayNotBeAskedForAreUnknown(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.PrivateRedis(t))
	if err := r.server.Client(t).Do(t.Context(), "ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	cfg := quick(r.server.Addr)
	cfg.Username, cfg.Password = "narrow", "pw"
	reg := prometheus.NewRegistry()
	d := r.driver(t, cfg, reg)
	r.publish(t, d, 3, "A")
	r.start(t, d, driver.Subscription{}, ack)
	testenv.Eventually(t, patience, "they are consumed", func() bool { s := r.state(t, d); return s.Backlog.Known && s.Backlog.N == 0 })
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "seahub_redis_unsafe_setting" {
			t.Errorf("the gauge has values that nobody knows: %v", f)
		}
	}
}
