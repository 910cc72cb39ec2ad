// Command fcmfake runs the strict fake of FCM by itself, until it is told to stop: for
// whoever tries push-consumer by hand, and for compose.yaml. GET /record and POST /control
// are the fake's (see package fcmfake).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fcmfake:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	addr := flag.String("addr", "127.0.0.1:0", "where to listen")
	keyFile := flag.String("key-file", "fcm-service-account.json", "where to write the service account's key")
	flag.Parse()
	s, err := fcmfake.Start(fcmfake.Options{Addr: *addr, KeyFile: *keyFile})
	if err != nil {
		return err
	}
	// The service may run as another user, and this key opens nothing but the fake.
	if err := os.Chmod(s.KeyFile(), 0o644); err != nil {
		return fmt.Errorf("make the key readable: %w", err)
	}
	fmt.Printf("export SEAHUB_FCM_ENDPOINT=%s SEAHUB_FCM_KEY_FILE=%s\n", s.URL(), s.KeyFile())
	<-ctx.Done()
	return s.Close()
}
