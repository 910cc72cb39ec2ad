// Package flags decides, row by row, whether the event path or the old poll works on
// something, and lets operators change that while everything runs.
//
// # Who decides
//
// Most to least: an explicit false in the environment (the rollback that needs no
// database); the row of (flag, country) in mq_feature_flag; the environment's true, for
// all rows; off. A database that is away keeps the last values, and their age is shown.
//
// # Rollout
//
// A row of the business is on when bucket(SHA-256(flag, salt, row id)) < basis points.
// The salt stays for the life of the flag, so raising the figure only adds rows and
// lowering it only takes rows away.
//
// # Hand-over
//
// Processes learn of a change at different times. So that during that time both paths
// may work on a row but never neither, a change becomes binding HandOver (10 s) after
// it was written, on the database's clock:
//
//   - the event path takes a row that is on now, or that was on before a change that
//     is not binding yet (State.EventOwns);
//   - the poll keeps a row that is not on, and every row created before the last
//     change became binding, until none is left (State.PollOwns).
//
// The arithmetic behind it: a change commits within setTimeout (3 s) of its timestamp,
// and a snapshot older than MaxAge (7 s) is Stale; a process must then not leave a row
// to the other side without asking the database again. So when a change becomes
// binding, every process that still decides anything has read it. With Refresh at
// most 5 s and a read bounded by loadTimeout (1500 ms), a healthy process is never
// Stale.
//
// A change that was made by hand, without a binding time, gets one in each process
// when the process first sees it.
package flags

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Name is a flag's name: seahub.mq.<name>.enabled.
type Name string

// The flags.
const (
	PushDispatch Name = "push-dispatch"
	CouponExpire Name = "coupon-expire"
	CampaignSync Name = "campaign-sync"
	// AppVersionSync is reserved: nothing consumes it. Setting it only warns and shows.
	AppVersionSync Name = "app-version-sync"
	OpsSnapshot    Name = "ops-snapshot"
)

// Names are all flags, in the order in which they are shown.
func Names() []Name {
	return []Name{PushDispatch, CouponExpire, CampaignSync, AppVersionSync, OpsSnapshot}
}

// The times of the hand-over; see the package comment.
const (
	HandOver    = 10 * time.Second
	MaxAge      = 7 * time.Second
	setTimeout  = 3 * time.Second
	loadTimeout = 1500 * time.Millisecond
)

// FullRollout is all rows, in basis points.
const FullRollout = 10_000

// Config is what the environment says. A switch that nobody set is nil.
type Config struct {
	PushDispatch   *bool         `env:"SEAHUB_MQ_PUSH_DISPATCH_ENABLED" key:"seahub.mq.push-dispatch.enabled" help:"push by events; false beats every row, true counts only where there is no row"`
	CouponExpire   *bool         `env:"SEAHUB_MQ_COUPON_EXPIRE_ENABLED" key:"seahub.mq.coupon-expire.enabled" help:"coupon expiry by events; false beats every row, true counts only where there is no row"`
	CampaignSync   *bool         `env:"SEAHUB_MQ_CAMPAIGN_SYNC_ENABLED" key:"seahub.mq.campaign-sync.enabled" help:"campaign sync by events; false beats every row, true counts only where there is no row"`
	AppVersionSync *bool         `env:"SEAHUB_MQ_APP_VERSION_SYNC_ENABLED" key:"seahub.mq.app-version-sync.enabled" help:"reserved: nothing consumes it, true warns and shows in a gauge"`
	OpsSnapshot    *bool         `env:"SEAHUB_MQ_OPS_SNAPSHOT_ENABLED" key:"seahub.mq.ops-snapshot.enabled" help:"ops figures by events; false beats every row, true counts only where there is no row"`
	Refresh        time.Duration `env:"SEAHUB_FLAGS_REFRESH" envDefault:"3s" key:"seahub.flags.refresh" min:"100ms" max:"5s" help:"how often the flags are read from the database"`
}

// env returns the environment's word on a flag, nil if it has none.
func (c Config) env(n Name) *bool {
	switch n {
	case PushDispatch:
		return c.PushDispatch
	case CouponExpire:
		return c.CouponExpire
	case CampaignSync:
		return c.CampaignSync
	case AppVersionSync:
		return c.AppVersionSync
	case OpsSnapshot:
		return c.OpsSnapshot
	}
	return nil
}

// Errors that callers test.
var (
	// ErrUnknownFlag: no such flag exists.
	ErrUnknownFlag = errors.New("unknown flag")
	// ErrInvalidChange: the change could never take effect as written.
	ErrInvalidChange = errors.New("invalid change of a flag")
	// ErrConflict: somebody else changed the flag since it was read.
	ErrConflict = errors.New("flag was changed by somebody else meanwhile: look at it again, then decide")
)

func known(n Name) error {
	for _, k := range Names() {
		if k == n {
			return nil
		}
	}
	return fmt.Errorf("%w %q: there are %v", ErrUnknownFlag, n, Names())
}

// Bucket places a row on the ring of 10,000 basis points. SHA-256 spreads sequential
// ids evenly, which FNV does not; the flag in it keeps the first percent of one flag
// from being the first percent of all.
func Bucket(flag Name, salt, rowID string) int {
	h := sha256.New()
	for _, part := range [...]string{string(flag), salt, rowID} {
		_, _ = h.Write([]byte(part)) // hash.Hash never fails
		_, _ = h.Write([]byte{0})
	}
	return int(binary.BigEndian.Uint64(h.Sum(nil)[:8]) % FullRollout)
}
