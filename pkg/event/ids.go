package event

import (
	"crypto/rand"
	"strconv"
	"time"
)

// PushEventID is the id of the first dispatch event of a push_messages row.
func PushEventID(pushID string) string { return "push:" + pushID }

// PushRetryEventID is the id of the event that brings a push back after its
// attempt-th attempt was told to wait longer than a broker should hold it.
func PushRetryEventID(pushID string, attempt int) string {
	return "push:" + pushID + ":a" + strconv.Itoa(attempt)
}

// CouponExpireEventID is the id of the expiry event of a user_coupons row.
func CouponExpireEventID(userID, couponID string) string {
	return "coupon:" + userID + ":" + couponID + ":expire"
}

// CampaignSyncEventID is the id of one sync round of a campaign. The round is part
// of it: a campaign is synced again and again, and event_id is unique for ever.
func CampaignSyncEventID(country, campaignID, round string) string {
	return "campaign:" + country + ":" + campaignID + ":" + round
}

// CampaignAggregateID names a campaign across countries.
func CampaignAggregateID(country, campaignID string) string { return country + ":" + campaignID }

const outboxIDAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"

// NewOutboxID makes the primary key of an outbox_event row in the app's own form:
// "obe", the milliseconds since 1970 in base 36, 12 random characters. It sorts by
// time and needs no coordination. Safe for concurrent use.
func NewOutboxID() string {
	id := make([]byte, 0, 24)
	id = append(id, "obe"...)
	id = strconv.AppendInt(id, time.Now().UnixMilli(), 36)
	var random [12]byte
	_, _ = rand.Read(random[:]) // crypto/rand.Read never fails (Go 1.24 and later end the process instead)
	for _, b := range random {
		// 252 is the largest multiple of 36 in a byte; the bias of folding the
		// last four values is irrelevant next to 36^12 possibilities.
		id = append(id, outboxIDAlphabet[int(b)%len(outboxIDAlphabet)])
	}
	return string(id)
}
