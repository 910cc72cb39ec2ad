package event_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
)

func TestGoldenCampaignPayloads(t *testing.T) {
	first, err := event.CampaignSyncStarted("id", "7366211545890096901", "rmcq2k9ab")
	require.NoError(t, err)
	resumed, err := event.CampaignSyncResumed("id", "7366211545890096901", "rmcq2k9ab", 3)
	require.NoError(t, err)
	for name, e := range map[string]event.Event{"campaign_sync": first, "campaign_resume": resumed} {
		got, err := json.MarshalIndent(map[string]any{
			"event_id": e.EventID, "event_type": e.Type, "aggregate_type": e.AggregateType,
			"aggregate_id": e.AggregateID, "payload": e.Payload,
		}, "", "  ")
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got), name)
	}
}

// The longest ids that the platform and the clock can make still fit the column.
func TestCampaignEventIDsFit(t *testing.T) {
	_, err := event.CampaignSyncResumed("id", "9223372036854775807", "rzzzzzzzzz", 9_999_999_999)
	require.NoError(t, err)
}

func TestDecodeCampaignSync(t *testing.T) {
	p, err := event.DecodeCampaignSync([]byte(`{"country":"id","campaignId":"9007199254740993","round":"r1","later":1}`))
	require.NoError(t, err)
	require.Equal(t, event.CampaignSyncPayload{Country: "id", CampaignID: "9007199254740993", Round: "r1"}, p)
	for _, body := range []string{``, `[]`, `{}`, `{"country":"id","campaignId":"1"}`, `{"country":"id","campaignId":1,"round":"r"}`, `"hunter2"`} {
		_, err := event.DecodeCampaignSync([]byte(body))
		require.ErrorIs(t, err, event.ErrPayload, body)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
