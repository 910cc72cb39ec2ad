package event

import (
	"encoding/json"
	"errors"
	"fmt"
)

// PushDispatchPayload asks for the dispatch of one push_messages row.
type PushDispatchPayload struct {
	PushID string `json:"pushId"`
}

// PushDispatched builds the event that a business transaction appends together
// with its push_messages row.
func PushDispatched(pushID string) (Event, error) {
	return build(PushEventID(pushID), PushDispatch, "push_task", pushID, PushDispatchPayload{PushID: pushID})
}

// PushRetried builds the event that brings a push back for its next attempt.
func PushRetried(pushID string, attempt int) (Event, error) {
	return build(PushRetryEventID(pushID, attempt), PushDispatch, "push_task", pushID, PushDispatchPayload{PushID: pushID})
}

// CouponExpirePayload asks for the expiry of one user_coupons row, if it is still due
// by then. UserCouponID is the row's id, not that of the coupon that it was issued from.
type CouponExpirePayload struct {
	UserCouponID string `json:"userCouponId"`
	UserID       string `json:"userId"`
}

// CouponExpired builds the event of a user_coupons row whose time has come.
func CouponExpired(userID, userCouponID string) (Event, error) {
	return build(CouponExpireEventID(userID, userCouponID), CouponExpire, "user_coupon", userCouponID,
		CouponExpirePayload{UserCouponID: userCouponID, UserID: userID})
}

func build(eventID string, t Type, aggregateType, aggregateID string, payload any) (Event, error) {
	body, err := json.Marshal(payload)
	if err != nil {
		return Event{}, fmt.Errorf("encode payload of event %q: %w", eventID, err)
	}
	e := Event{EventID: eventID, Type: t, AggregateType: aggregateType, AggregateID: aggregateID, Payload: body}
	return e, e.Validate()
}

// ErrPayload is wrapped by every error of the Decode functions: the payload will
// not become readable by trying again.
var ErrPayload = errors.New("unusable payload")

// DecodePushDispatch reads a PUSH_DISPATCH payload. Unknown fields are ignored, so
// that producers may be ahead of consumers.
func DecodePushDispatch(body []byte) (PushDispatchPayload, error) {
	var p PushDispatchPayload
	if err := decode(PushDispatch, body, &p); err != nil {
		return p, err
	}
	if p.PushID == "" {
		return p, fmt.Errorf("%w: PUSH_DISPATCH has no pushId", ErrPayload)
	}
	return p, nil
}

// DecodeCouponExpire reads a COUPON_EXPIRE payload, unknown fields ignored.
func DecodeCouponExpire(body []byte) (CouponExpirePayload, error) {
	var p CouponExpirePayload
	if err := decode(CouponExpire, body, &p); err != nil {
		return p, err
	}
	if p.UserCouponID == "" {
		return p, fmt.Errorf("%w: COUPON_EXPIRE has no userCouponId", ErrPayload)
	}
	return p, nil
}
