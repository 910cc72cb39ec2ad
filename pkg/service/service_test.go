package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type roomConfig struct {
	Password string        `env:"SEAHUB_ROOM_PASSWORD" key:"seahub.room.password" required:"true" secret:"true" help:"secret"`
	MaxSize  int           `env:"SEAHUB_ROOM_MAX_SIZE" envDefault:"10" key:"seahub.room.max-size" min:"1" max:"100" help:"size"`
	Wait     time.Duration `env:"SEAHUB_ROOM_WAIT" envDefault:"5s" key:"seahub.room.wait" min:"1s" help:"wait"`
	Mode     string        `env:"SEAHUB_ROOM_MODE" key:"seahub.room.mode" oneof:",fast,safe" help:"mode"`
	On       *bool         `env:"SEAHUB_ROOM_ON" key:"seahub.room.on" help:"switch"`
	Part     partConfig
}

// partConfig is a part of the room that only the room knows to be in use.
type partConfig struct {
	Host string `env:"SEAHUB_ROOM_PART_HOST" key:"seahub.room.part.host" help:"host"`
}

func (partConfig) Validate() error { return errors.New("SEAHUB_ROOM_PART_HOST is asked for itself") }

func (c roomConfig) Validate() error {
	var errs []error
	if c.MaxSize == 13 {
		errs = append(errs, errors.New("SEAHUB_ROOM_MAX_SIZE (seahub.room.max-size): 13 does not go with the rest"))
	}
	if c.Wait < 2*time.Second {
		errs = append(errs, errors.New("SEAHUB_ROOM_WAIT (seahub.room.wait) is too short for the rest"))
	}
	return errors.Join(errs...)
}

type testConfig struct {
	Base Base
	Room roomConfig
}

func good(more ...string) []string {
	return append([]string{"SEAHUB_ENV=id-test", "SEAHUB_COUNTRY=id", "SEAHUB_ROOM_PASSWORD=hunter2", "SEAHUB_ADMIN_ADDR=127.0.0.1:0"}, more...)
}

func TestLoadReportsEveryProblemAtOnceAndNoSecret(t *testing.T) {
	var cfg testConfig
	_, err := load(&cfg, []string{
		"SEAHUB_ENV=Id Test", "SEAHUB_ROOM_MAX_SIZE=1000", "SEAHUB_ROOM_WAIT=soon", "SEAHUB_ROOM_MODE=slow",
		"SEAHUB_ROOM_ON=ture", "SEAHUB_LOG_LEVEL=loud", "SEAHUB_ROOM_PASSWORD= hunter2",
	})
	require.ErrorIs(t, err, ErrConfig)
	for _, want := range []string{
		`SEAHUB_ENV (seahub.env): "Id Test" is not allowed`,
		"SEAHUB_COUNTRY (seahub.country): is required",
		`SEAHUB_ROOM_MAX_SIZE (seahub.room.max-size): "1000" is out of range; allowed: 1 to 100`,
		`SEAHUB_ROOM_WAIT (seahub.room.wait): "soon" is not a duration`,
		`SEAHUB_ROOM_MODE (seahub.room.mode): "slow" is not allowed; allowed: one of "", fast, safe`,
		`SEAHUB_ROOM_ON (seahub.room.on): "ture" is not a bool; allowed: true or false`,
		"SEAHUB_LOG_LEVEL (seahub.log.level)",
		"SEAHUB_ROOM_PASSWORD (seahub.room.password): begins or ends with a space: (hidden)",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "hunter2")
}

// What single values show and what only several show is one report, in which no key is
// blamed for what another one's mistake left in its place.
func TestCrossChecksAreInTheSameReport(t *testing.T) {
	var cfg testConfig
	_, err := load(&cfg, good("SEAHUB_ROOM_MODE=slow", "SEAHUB_ROOM_MAX_SIZE=13", "SEAHUB_ROOM_WAIT=soon", "SEAHUB_ADMIN_ADDR=9090"))
	require.ErrorContains(t, err, "SEAHUB_ROOM_MODE")
	require.ErrorContains(t, err, "13 does not go with the rest")
	require.ErrorContains(t, err, `SEAHUB_ADMIN_ADDR (seahub.admin.addr): "9090" is not of the form`)
	require.ErrorContains(t, err, `"soon" is not a duration`)
	require.NotContains(t, err.Error(), "too short for the rest")
	require.NotContains(t, err.Error(), "asked for itself", "a room answers for its parts")
	require.Equal(t, 4, strings.Count(err.Error(), "\n"))
}

func TestLoadTakesBothSpellings(t *testing.T) {
	tests := []struct {
		name    string
		env     []string
		want    int
		problem string
	}{
		{"default", nil, 10, ""},
		{"dashes as underscores", []string{"SEAHUB_ROOM_MAX_SIZE=7"}, 7, ""},
		{"Spring's own", []string{"SEAHUB_ROOM_MAXSIZE=7"}, 7, ""},
		{"both, equal", []string{"SEAHUB_ROOM_MAXSIZE=7", "SEAHUB_ROOM_MAX_SIZE=7"}, 7, ""},
		{"both, different", []string{"SEAHUB_ROOM_MAXSIZE=8", "SEAHUB_ROOM_MAX_SIZE=7"}, 0, "also given as SEAHUB_ROOM_MAXSIZE"},
		{"cross check", []string{"SEAHUB_ROOM_MAX_SIZE=13"}, 0, "13 does not go with the rest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var cfg testConfig
			_, err := load(&cfg, good(tt.env...))
			if tt.problem != "" {
				require.ErrorContains(t, err, tt.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, cfg.Room.MaxSize)
		})
	}
}

func TestLoadWarnsOfNamesThatNobodyReads(t *testing.T) {
	var cfg testConfig
	warnings, err := load(&cfg, good("SEAHUB_ROOM_MAXX=1", "OTHER=1"))
	require.NoError(t, err)
	require.Equal(t, []string{"SEAHUB_ROOM_MAXX"}, warnings)
	require.Nil(t, cfg.Room.On, "an optional switch that nobody set")
}

func TestKeysMustBelongToTheirVariables(t *testing.T) {
	_, err := keysOf(&struct {
		A string `env:"SEAHUB_A_B" key:"seahub.a.c"`
	}{})
	require.ErrorContains(t, err, "SEAHUB_A_C")
}

func TestConfigCommandHidesSecretsAndAnswersTwoWhenUnusable(t *testing.T) {
	var out, errOut bytes.Buffer
	spec := Spec{Name: "demo", Config: &testConfig{}}
	require.Equal(t, ExitOK, run(t.Context(), spec, []string{"config"}, good(), &out, &errOut), errOut.String())
	require.Contains(t, out.String(), "SEAHUB_ROOM_MAX_SIZE")
	require.Contains(t, out.String(), "(hidden)")
	require.NotContains(t, out.String(), "hunter2")
	require.Equal(t, ExitUsage, run(t.Context(), spec, []string{"config"}, nil, &out, &errOut))
	require.Equal(t, ExitUsage, run(t.Context(), spec, []string{"confg"}, good(), &out, &errOut))
	require.Equal(t, ExitUsage, run(t.Context(), spec, []string{"config", "--jsn"}, good(), &out, &errOut))
}

// What has no value yet is listed too, with its labels; nothing of the service runs.
func TestTheMetricsCommandListsWhatAScrapeWouldNotShowYet(t *testing.T) {
	worked := false
	spec := Spec{Name: "demo", Config: &testConfig{}, Run: func(_ context.Context, p *Process) error {
		odd := "a \"quoted\", {odd} help"
		p.Registerer().MustRegister(
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seahub_demo_total", Help: odd, ConstLabels: prometheus.Labels{"task": "a,b=\"c\""}}, []string{"result", "tag"}),
			prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seahub_demo_seconds"}))
		p.Go("loop", func(ctx context.Context) error { worked = ctx.Err() == nil; <-ctx.Done(); return nil })
		return nil
	}}
	var out, errOut bytes.Buffer
	require.Equal(t, ExitOK, run(t.Context(), spec, []string{"metrics", "--json"}, good(), &out, &errOut), errOut.String())
	require.False(t, worked)
	var list []Metric
	require.NoError(t, json.Unmarshal(out.Bytes(), &list))
	byName := map[string]Metric{}
	for _, m := range list {
		byName[m.Name] = m
	}
	require.Equal(t, Metric{Name: "seahub_demo_total", Kind: "counter", Labels: []string{"result", "tag"}, Const: map[string]string{"task": "a,b=\"c\""}, Help: "a \"quoted\", {odd} help"}, byName["seahub_demo_total"])
	require.Equal(t, "histogram", byName["seahub_demo_seconds"].Kind)
	require.Contains(t, byName, "seahub_build_info")
	require.Contains(t, byName, "go_goroutines")
	require.Equal(t, ExitOK, run(t.Context(), spec, []string{"metrics"}, good(), &out, &errOut))
	require.Contains(t, out.String(), `result,tag,task="a,b=\"c\""`)
}

func TestCommandErrorsBecomeExitCodes(t *testing.T) {
	for want, result := range map[int]error{ExitOK: nil, ExitFailed: errors.New("broken"), ExitUsage: ErrUsage} {
		var out, errOut bytes.Buffer
		spec := Spec{Name: "demo", Config: &testConfig{}, Commands: []*cobra.Command{{
			Use: "do", RunE: func(*cobra.Command, []string) error { return result },
		}}}
		require.Equal(t, want, run(t.Context(), spec, []string{"do"}, good(), &out, &errOut))
	}
}

func TestProcessLife(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var order []string
	note := func(s string) { mu.Lock(); defer mu.Unlock(); order = append(order, s) }
	admin := make(chan string, 1)
	spec := Spec{Name: "demo", Config: &testConfig{}, Run: func(_ context.Context, p *Process) error {
		beat := p.Heartbeat("loop", time.Hour)
		p.Ready("broker", func() (bool, string) { return true, "broker is away, the poll works" })
		p.OnStop("first", func(context.Context) error { note("first closed"); return nil })
		p.OnStop("second", func(context.Context) error { note("second closed"); return nil })
		p.Registerer().MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "seahub_demo"}))
		p.Go("loop", func(ctx context.Context) error { beat(); <-ctx.Done(); note("loop drained"); return ctx.Err() })
		return nil
	}}
	logs := &addrCatcher{found: admin}
	done := make(chan int, 1)
	go func() { done <- run(ctx, spec, nil, good(), &bytes.Buffer{}, logs) }()
	addr := <-admin
	require.Equal(t, 200, get(t, addr, "/livez", nil))
	var ready Report
	require.Equal(t, 200, get(t, addr, "/readyz", &ready))
	require.Equal(t, "broker is away, the poll works", ready.Reasons["broker"])
	require.Equal(t, 200, get(t, addr, "/metrics", nil))
	require.Equal(t, 200, get(t, addr, "/version", nil))
	require.Equal(t, 404, get(t, addr, "/debug/pprof/", nil))
	cancel()
	require.Equal(t, ExitOK, <-done)
	require.Equal(t, []string{"loop drained", "second closed", "first closed"}, order)
}

func TestAFailingOrVanishingLoopEndsTheProcess(t *testing.T) {
	for name, result := range map[string]error{"fails": errors.New("no more"), "vanishes": nil} {
		t.Run(name, func(t *testing.T) {
			var errOut bytes.Buffer
			spec := Spec{Name: "demo", Config: &testConfig{}, Run: func(_ context.Context, p *Process) error {
				p.Go("loop", func(context.Context) error { return result })
				return nil
			}}
			require.Equal(t, ExitFailed, run(t.Context(), spec, nil, good(), &bytes.Buffer{}, &errOut))
			require.Contains(t, errOut.String(), "loop loop")
		})
	}
}

func TestHealthFollowsHeartbeatsAndStop(t *testing.T) {
	h := newHealth()
	beat := h.heartbeat("loop", time.Nanosecond)
	time.Sleep(time.Millisecond)
	require.False(t, h.live().OK)
	h.heartbeat("loop", time.Hour)()
	beat()
	require.True(t, h.live().OK)
	require.True(t, h.readiness().OK)
	h.ready("db", func() (bool, string) { return false, "down" })
	require.False(t, h.readiness().OK)
	h.stopping()
	require.Equal(t, "stopping", h.readiness().Reasons["process"])
}

// addrCatcher takes the admin address out of the log.
type addrCatcher struct {
	found chan string
	once  sync.Once
}

func (c *addrCatcher) Write(line []byte) (int, error) {
	var l struct{ Admin string }
	if json.Unmarshal(line, &l) == nil && l.Admin != "" {
		c.once.Do(func() { c.found <- l.Admin })
	}
	return len(line), nil
}

func get(t *testing.T, addr, path string, into any) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + addr + path)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if into != nil {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(into))
	}
	return resp.StatusCode
}

func TestLogLinesCarryTheBaseFields(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(Base{Env: "id-test", Country: "id", LogLevel: "info", LogFormat: "json"}, "demo", &out)
	log.Info().Msg("x")
	for _, want := range []string{`"env":"id-test"`, `"country":"id"`, `"service":"demo"`} {
		require.True(t, strings.Contains(out.String(), want), out.String())
	}
}
