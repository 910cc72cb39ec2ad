// Command tiktokfake runs the strict fake of TikTok by itself, until it is told to stop:
// for whoever tries campaign-consumer by hand. It prints what the service's variables
// must be; GET /record and POST /control are the fake's (see package tiktokfake).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tiktokfake:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	addr := flag.String("addr", "127.0.0.1:0", "where to listen")
	campaigns := flag.Int("campaigns", 3, "campaigns to begin with")
	products := flag.Int("products", 120, "products of each")
	delay := flag.Duration("delay", 0, "how long each call and each share link takes")
	qps := flag.Int("qps", 0, "calls a second that are taken; 0: all")
	flag.Parse()
	s, err := tiktokfake.Start(tiktokfake.Options{Addr: *addr, Delay: *delay, LinkDelay: *delay, QPS: *qps})
	if err != nil {
		return err
	}
	for i := range *campaigns {
		s.Add(tiktokfake.NewCampaign(i, *products))
	}
	fmt.Printf(`export SEAHUB_TIKTOK_APP_KEY=%s SEAHUB_TIKTOK_APP_SECRET=%s
export SEAHUB_TIKTOK_ENDPOINT=%s SEAHUB_TIKTOK_AUTH_ENDPOINT=%s SEAHUB_CAMPAIGN_LINK_TEST_ADDRESS=%s
echo %s | campaign-consumer authorise
`, s.AppKey(), s.AppSecret(), s.URL(), s.URL(), s.Addr(), s.AuthCode())
	<-ctx.Done()
	return s.Close()
}
