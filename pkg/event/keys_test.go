package event_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
)

// Programs disagree on which of two equal keys counts, and Go takes "pushid" for
// "pushId". Such a payload is refused where it is written, and where it is read, since
// other programs write too.
func TestAPayloadThatProgramsReadDifferentlyIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		payload string
		refused bool
	}{
		"twice the same":        {`{"pushId":"1","pushId":"2"}`, true},
		"in another case":       {`{"pushId":"1","pushid":"2"}`, true},
		"with another type":     {`{"pushId":"1","amount":1,"AMOUNT":"x"}`, true},
		"escaped":               {`{"pushId":"1","push\u0049d":"2"}`, true},
		"a sign that folds":     {`{"pushId":"1","kind":1,"` + "\u212a" + `ind":2}`, true},
		"in an object inside":   {`{"pushId":"1","a":[{"x":1},{"y":{"b":1,"B":2}}]}`, true},
		"behind an object":      {`{"pushId":"1","a":{"x":[1,{}]},"PUSHID":"2"}`, true},
		"in different objects":  {`{"pushId":"1","a":{"pushId":"2","x":1},"b":[{"x":1},{"x":2}],"x":0}`, false},
		"as a value":            {`{"pushId":"1","a":["a","A","a"],"b":"a"}`, false},
		"keys that look nearly": {`{"pushId":"1","push_id":"2","é":1,"e":2}`, false},
		"numbers of any size":   {`{"pushId":"1","n":[1E400,-0,9007199254740993]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := valid()
			e.Payload = json.RawMessage(c.payload)
			_, err := event.DecodePushDispatch(e.Payload)
			if !c.refused {
				require.NoError(t, e.Validate())
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, event.ErrPayload, "it will not become readable")
			err = e.Validate()
			require.ErrorIs(t, err, event.ErrInvalid)
			require.ErrorContains(t, err, "twice")
			require.NotContains(t, err.Error(), "AMOUNT")
		})
	}
	for kind, decode := range map[string]func() error{
		"coupon": func() error {
			_, err := event.DecodeCouponExpire([]byte(`{"userCouponId":"1","USERCOUPONID":"2"}`))
			return err
		},
		"campaign": func() error {
			_, err := event.DecodeCampaignSync([]byte(`{"country":"id","campaignId":"1","round":"r","Round":"s"}`))
			return err
		},
		"ops": func() error {
			_, _, err := event.DecodeOpsCounter([]byte(`{"metric":"order_new","country":"id","occurredAt":"2026-01-01T00:00:00.000Z","Country":"my"}`))
			return err
		},
	} {
		require.ErrorIs(t, decode(), event.ErrPayload, kind)
	}
}
