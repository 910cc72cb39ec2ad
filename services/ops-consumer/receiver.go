package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

const (
	receiverTimeout  = 5 * time.Second
	receiverMaxBody  = 8 << 20 // as many alerts with long texts: what is refused is not sent again
	receiverMaxItems = 1000
)

// receiver takes Alertmanager's webhook (version 4) into the same pipeline. It answers
// 2xx only for what is stored: Alertmanager tries again after 5xx, and drops after 4xx.
type receiver struct {
	cfg   Config
	store store
}

// webhookBody is the part of Alertmanager's message that is used.
type webhookBody struct {
	Version string         `json:"version"`
	Alerts  []webhookAlert `json:"alerts"`
}

type webhookAlert struct {
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	Fingerprint string            `json:"fingerprint"`
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := rc.cfg.Alert.ReceiverToken
	if token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) != 1 {
		http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		return
	}
	var body webhookBody
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, receiverMaxBody)).Decode(&body); err != nil {
		http.Error(w, "not a message of Alertmanager", http.StatusBadRequest)
		return
	}
	if len(body.Alerts) == 0 || len(body.Alerts) > receiverMaxItems {
		http.Error(w, "no alerts, or more than 1000", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), receiverTimeout)
	defer cancel()
	if err := rc.take(ctx, body.Alerts); err != nil {
		zerolog.Ctx(ctx).Error().Err(err).Msg("alerts of Alertmanager were not stored, it will send them again")
		http.Error(w, "not stored", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// take stores alerts and what is to be told of them.
func (rc *receiver) take(ctx context.Context, in []webhookAlert) error {
	sweepID := newSweepID()
	byPrint := map[string]webhookAlert{}
	for _, a := range in {
		byPrint[fingerprintOf("am:"+a.name(), rc.store.country, a.identity())] = a
	}
	prints := make([]string, 0, len(byPrint))
	for p := range byPrint {
		prints = append(prints, p)
	}
	slices.Sort(prints)
	return rc.store.receive(ctx, prints, func(rows map[string]alert, now time.Time) ([]alert, []routed) {
		var changed []alert
		var tells []told
		for _, p := range prints {
			st := rc.advance(rows[p], byPrint[p], now, sweepID)
			if st.changed {
				st.alert.Fingerprint = p
				changed = append(changed, st.alert)
			}
			if st.tell != "" {
				tells = append(tells, told{st.tell, st.alert})
			}
		}
		for i := range tells {
			tells[i].alert.Fingerprint = cmp.Or(tells[i].alert.Fingerprint, fingerprintOf("am:"+tells[i].alert.Rule, rc.store.country, ""))
		}
		return changed, compose(tells, now, sweepID, rc.cfg.Base.Env, rc.store.country, func(string) string { return routeFeishu })
	})
}

// advance moves a row by what Alertmanager says: it has waited and grouped already, so
// that neither a hold nor a time to clear applies.
func (rc *receiver) advance(row alert, in webhookAlert, now time.Time, sweepID string) step {
	c := rc.cfg.Alert
	c.ClearFor = 0
	row.Rule, row.Origin, row.Subject = in.name(), originAlertmanager, cutText(clean(in.identity(), 128), 128)
	row.Severity = in.severity()
	if in.Status == "resolved" {
		return advance(row, no, now, c, 0, false)
	}
	// What is too long for the row would be refused for ever, with all that came beside it.
	row.Detail = detail{
		Task:    cutText(cmp.Or(in.Labels["task"], in.Labels["consumer_group"], in.Labels["job"], in.name()), 128),
		Service: cutText(cmp.Or(in.Labels["service"], in.Labels["job"], "prometheus"), 128),
		Summary: cutText(cmp.Or(in.Annotations["summary"], in.Annotations["description"], in.name()), 500),
		Runbook: cutText(in.runbook(rc.cfg.Alert.Runbooks), 500),
		Note:    cutText(in.Annotations["description"], 500), RequestID: sweepID,
	}
	st := advance(row, yes, now, c, 0, false)
	if st.tell == kindFiring && !in.StartsAt.IsZero() && in.StartsAt.Before(now) {
		st.alert.Since = in.StartsAt
	}
	return st
}

func (a webhookAlert) name() string {
	return cutText(clean(cmp.Or(a.Labels["alertname"], "unnamed"), 64), 64)
}

// runbook is the page that the rule names. Ours name theirs by its path in the checkout.
func (a webhookAlert) runbook(pages string) string {
	link := cmp.Or(a.Annotations["runbook_url"], a.name()+".md")
	if strings.Contains(link, "://") {
		return link
	}
	return strings.TrimRight(pages, "/") + "/" + path.Base(link)
}

func (a webhookAlert) severity() string {
	switch s := strings.ToLower(a.Labels["severity"]); s {
	case severityCritical, "page":
		return severityCritical
	case severityInfo, "none":
		return severityInfo
	}
	return severityWarning
}

// identity tells alerts of one name apart: all labels but the name.
func (a webhookAlert) identity() string {
	var parts []string
	for k, v := range a.Labels {
		if k != "alertname" && k != "severity" {
			parts = append(parts, k+"="+v)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
