package demo

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

const (
	// minPushes keeps every group below from being empty.
	minPushes  = 200
	minCoupons = 200
	// pushesPerUser is the mean.
	pushesPerUser = 2
	// Of the users, one in deadOnly has a single device that is gone, and one in
	// deadPart has one that is gone beside others.
	deadOnly, deadPart = 40, 25
	insertRows         = 500
)

// cast is who gets the pushes.
type cast struct {
	users []string
	dead  []string // tokens
}

type device struct{ id, user, platform, token string }

// newCast creates users with one to three devices, and tells the fake which tokens are
// of devices that are gone.
func newCast(ctx context.Context, s *stack.Stack, pushes int) (*cast, error) {
	c := &cast{}
	var devices []device
	for i := range pushes / pushesPerUser {
		user := fmt.Sprintf("user-%04d", i)
		c.users = append(c.users, user)
		count, dead := 1+i%3, -1
		switch {
		case i%deadOnly == 0:
			count, dead = 1, 0
		case i%deadPart == 0:
			count = 2 + i%2
			dead = i % count
		}
		for n := range count {
			d := device{fmt.Sprintf("%s-device-%d", user, n), user, []string{"android", "ios"}[n%2], fmt.Sprintf("token-%04d-%d", i, n)}
			devices = append(devices, d)
			if n == dead {
				c.dead = append(c.dead, d.token)
				s.FCM.BehaveFor(d.token, fcmfake.Behaviour{Kind: fcmfake.Unregistered})
			}
		}
	}
	return c, insertDevices(ctx, s.DB, devices)
}

func insertDevices(ctx context.Context, db *sql.DB, devices []device) error {
	for len(devices) > 0 {
		n := min(insertRows, len(devices))
		var args []any
		for _, d := range devices[:n] {
			args = append(args, d.id, d.user, d.platform, d.token)
		}
		rows := strings.TrimSuffix(strings.Repeat("(?, ?, ?, ?),", n), ",")
		if _, err := db.ExecContext(ctx, "INSERT INTO user_devices (id, user_id, platform, push_token) VALUES "+rows, args...); err != nil {
			return fmt.Errorf("create devices: %w", err)
		}
		devices = devices[n:]
	}
	return nil
}
