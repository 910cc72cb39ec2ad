package main

import (
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
)

// Config is everything that can be set.
type Config struct {
	Base  service.Base
	DB    db.Config
	MQ    provider.Config
	Flags flags.Config
	Task  task.Config

	ScanDelayMS  int           `env:"SEAHUB_COUPON_EXPIRE_SCAN_DELAY_MS" envDefault:"300000" key:"seahub.coupon.expire-scan-delay-ms" min:"50" max:"3600000" help:"pause between two scans in milliseconds, by the app's own key"`
	OverdueScans int           `env:"SEAHUB_COUPON_OVERDUE_SCANS" envDefault:"2" key:"seahub.coupon.overdue-scans" min:"2" max:"1000" help:"a coupon of the event path that is due for longer than this many pauses is expired by the scan, as a fallback"`
	ScanBatch    int           `env:"SEAHUB_COUPON_SCAN_BATCH" envDefault:"500" key:"seahub.coupon.scan-batch" min:"1" max:"5000" help:"coupons that the scan reads, and changes in one transaction, at a time"`
	ScanPause    time.Duration `env:"SEAHUB_COUPON_SCAN_PAUSE" envDefault:"10ms" key:"seahub.coupon.scan-pause" min:"0s" max:"10s" help:"pause between two batches of a scan; what replicas and other writers breathe by"`
	ScanLease    time.Duration `env:"SEAHUB_COUPON_SCAN_LEASE" envDefault:"30s" key:"seahub.coupon.scan-lease" min:"1s" max:"10m" help:"how long a scanner that died keeps the others from scanning"`
}

func (c Config) scanEvery() time.Duration { return time.Duration(c.ScanDelayMS) * time.Millisecond }

func (c Config) overdueBy() time.Duration { return time.Duration(c.OverdueScans) * c.scanEvery() }

// Validate checks what single values cannot show.
func (c Config) Validate() error {
	// The time to live of a lease has margins in which nobody trusts it.
	if c.ScanPause > c.ScanLease/4 {
		return fmt.Errorf("SEAHUB_COUPON_SCAN_PAUSE (seahub.coupon.scan-pause) is %s, more than a quarter of SEAHUB_COUPON_SCAN_LEASE (seahub.coupon.scan-lease) %s: a scan would spend its lease on waiting", c.ScanPause, c.ScanLease)
	}
	return nil
}
