package main

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// memory watches what everything else here depends on. It has no place to keep a state:
// each process tells for itself, past queue and budget.
type memory struct {
	cfg     Config
	ping    func(ctx context.Context) error
	outlets []outlet
	beat    func()

	downSince time.Time
	toldAt    time.Time
	lastError error
}

// ruleDatabase is the name of the one alert that needs no database.
const ruleDatabase = "DatabaseUnreachable"

func (m *memory) run(ctx context.Context) error {
	every := min(5*time.Second, max(200*time.Millisecond, m.cfg.Alert.MemoryAfter/6))
	for {
		m.beat()
		m.look(ctx, time.Now())
		if !backoff.Sleep(ctx, every) {
			return nil
		}
	}
}

// look asks once, and tells if that is due. now is monotonic.
func (m *memory) look(ctx context.Context, now time.Time) {
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	err := m.ping(bounded)
	cancel()
	switch {
	case ctx.Err() != nil:
	case err == nil && !m.toldAt.IsZero():
		if m.tell(ctx, now, kindResolved) {
			m.downSince, m.toldAt = time.Time{}, time.Time{}
		}
	case err == nil:
		m.downSince = time.Time{}
	case m.downSince.IsZero():
		m.downSince, m.lastError = now, err
	case m.toldAt.IsZero() && now.Sub(m.downSince) >= m.cfg.Alert.MemoryAfter:
		m.lastError = err
		if m.tell(ctx, now, kindFiring) {
			m.toldAt = now
		}
	case !m.toldAt.IsZero() && now.Sub(m.toldAt) >= m.cfg.Alert.MemoryRepeat:
		m.lastError = err
		if m.tell(ctx, now, kindRepeat) {
			m.toldAt = now
		}
	}
}

// tell sends straight to every address there is, and says whether one took it.
func (m *memory) tell(ctx context.Context, now time.Time, kind string) bool {
	base := m.cfg.Base
	note := "figures, alerts and counters stand still until it is back"
	if m.lastError != nil {
		note += "; last answer: " + m.lastError.Error()
	}
	msg := message{
		Kind: kind, Rule: ruleDatabase, Severity: severityCritical, Env: base.Env, Country: base.Country, Service: "ops-consumer",
		Summary: "MySQL is unreachable from ops-consumer", Runbook: m.cfg.Alert.Runbooks + "/" + ruleDatabase + ".md",
		SweepID: newSweepID(), At: time.Now(),
	}
	msg.Items = []item{{
		Fingerprint: fingerprintOf(ruleDatabase, base.Country, ""), Episode: 1, Task: "ops-snapshot",
		Value:     now.Sub(m.downSince).Round(time.Second).String(),
		Threshold: m.cfg.Alert.MemoryAfter.String(), Note: note, RequestID: msg.SweepID,
		Since: time.Now().Add(-now.Sub(m.downSince)),
	}}
	taken, addresses := false, false
	for _, o := range m.outlets {
		if o.send == nil {
			continue
		}
		addresses = true
		if a := o.send(ctx, msg, false); a.class == answerTaken {
			taken = true
		} else {
			zerolog.Ctx(ctx).Error().Err(a.err).Str("route", o.route).Msg("the alert about the database was not taken")
		}
	}
	zerolog.Ctx(ctx).Error().AnErr("cause", m.lastError).Str("kind", kind).Msg(msg.Summary)
	return taken || !addresses
}
