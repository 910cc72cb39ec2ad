package event

import (
	"fmt"
	"strconv"
)

// CampaignSyncPayload asks for one round of one campaign: to bring its products up to
// date. All three are text; a campaign's id does not fit a float.
type CampaignSyncPayload struct {
	Country    string `json:"country"`
	CampaignID string `json:"campaignId"`
	Round      string `json:"round"`
}

// CampaignSyncStarted builds the event that starts a round; it is appended together
// with the round's row.
func CampaignSyncStarted(country, campaignID, round string) (Event, error) {
	return campaignSync(CampaignSyncEventID(country, campaignID, round), country, campaignID, round)
}

// CampaignSyncResumed builds the event that carries a round on. n tells the
// continuations of a round apart.
func CampaignSyncResumed(country, campaignID, round string, n int64) (Event, error) {
	return campaignSync(CampaignResumeEventID(country, campaignID, round, n), country, campaignID, round)
}

// CampaignResumeEventID is the id of a round's n-th continuation.
func CampaignResumeEventID(country, campaignID, round string, n int64) string {
	return CampaignSyncEventID(country, campaignID, round) + ":a" + strconv.FormatInt(n, 10)
}

func campaignSync(eventID, country, campaignID, round string) (Event, error) {
	return build(eventID, CampaignProductSync, "tiktok_campaign", CampaignAggregateID(country, campaignID),
		CampaignSyncPayload{Country: country, CampaignID: campaignID, Round: round})
}

// DecodeCampaignSync reads a CAMPAIGN_PRODUCT_SYNC payload, unknown fields ignored.
func DecodeCampaignSync(body []byte) (CampaignSyncPayload, error) {
	var p CampaignSyncPayload
	if err := decode(CampaignProductSync, body, &p); err != nil {
		return p, err
	}
	if p.Country == "" || p.CampaignID == "" || p.Round == "" {
		return p, fmt.Errorf("%w: CAMPAIGN_PRODUCT_SYNC lacks country, campaignId or round", ErrPayload)
	}
	return p, nil
}
