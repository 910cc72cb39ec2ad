package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
)

// handOff is how many deliveries of one event are enough: a further wait becomes a
// delayed event whatever its length, so that waiting never uses up the broker's
// attempts and ends in a dead letter.
const handOff = 8

// RowID implements task.Work: the rollout goes by campaigns.
func (s *syncer) RowID(d eventbus.Delivery) (string, error) {
	p, err := event.DecodeCampaignSync(d.Body)
	if err != nil {
		return "", err
	}
	if p.Country != s.cfg.Base.Country {
		return "", fmt.Errorf("%w: it is of country %q", event.ErrPayload, p.Country)
	}
	if !idForm.MatchString(p.CampaignID) {
		return "", fmt.Errorf("%w: campaignId is no id of the platform's", event.ErrPayload)
	}
	return p.CampaignID, nil
}

// Handle implements task.Work: the event path. It works for one slice; the rest goes to
// another event, written with the cursor, so that no event lasts longer than a broker
// waits for it, and a wait that the platform asks for costs no attempts.
func (s *syncer) Handle(ctx context.Context, campaignID string, d eventbus.Delivery) eventbus.Outcome {
	p, err := event.DecodeCampaignSync(d.Body)
	if err != nil {
		return eventbus.Dead("payload is not usable", err)
	}
	r, err := s.run(ctx, campaignID, p.Round, s.byEvents(), func() bool { return true })
	switch {
	case err != nil:
		return task.Retry(err, d.Attempt)
	case r.finished != "":
		return task.Done("round is " + r.finished)
	case r.left:
		return task.Done("another event carries the round on")
	}
	return s.refused(ctx, campaignID, p.Round, *r.refused, d)
}

// refused: a round that is over is done; one that is held or not due comes back when
// that ends.
func (s *syncer) refused(ctx context.Context, campaignID, roundID string, why refusal, d eventbus.Delivery) eventbus.Outcome {
	if why.Finished == notCurrent {
		return eventbus.Skip("round is not the campaign's current one")
	}
	if why.Finished != "" {
		return task.Done("round is " + why.Finished + " already")
	}
	why.Wait = max(why.Wait, 0) + 50*time.Millisecond + rand.N(200*time.Millisecond)
	if why.Wait > task.LongWait || d.Attempt >= handOff {
		if err := s.store.wakeLater(ctx, campaignID, roundID, why); err != nil {
			return task.Retry(err, d.Attempt)
		}
		return task.Done("a delayed event brings the round back")
	}
	out := eventbus.RetryAfter(why.Wait, nil)
	out.Reason = "round is not due yet"
	if why.Held {
		out.Reason = "another worker has the campaign"
	}
	return out
}
