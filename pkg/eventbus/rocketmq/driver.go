package rocketmq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// Driver is the RocketMQ side of an event bus. It is safe for concurrent use and
// implements driver.Sender, Receiver and Inspector.
type Driver struct {
	cfg Config
	// slots bounds the sends under way, those included that a caller has given up.
	slots chan struct{}
	sends sync.WaitGroup

	mu       sync.Mutex
	producer rocketmq.Producer // made by the first send: a consumer needs none
	closed   bool
}

var (
	_ driver.Sender    = (*Driver)(nil)
	_ driver.Receiver  = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
)

// New makes a driver. It dials nothing: an error is always one of configuration.
func New(cfg Config, logger zerolog.Logger) (*Driver, error) {
	cfg = cfg.withDefaults()
	var errs []error
	if len(cfg.nameServers()) == 0 {
		errs = append(errs, errors.New("SEAHUB_ROCKETMQ_NAME_SERVERS (seahub.rocketmq.name-servers) names no server: give host:port"))
	}
	if err := errors.Join(append(errs, cfg.Validate())...); err != nil {
		return nil, err
	}
	routeClientLog(logger)
	return &Driver{cfg: cfg, slots: make(chan struct{}, cfg.SendWorkers)}, nil
}

func (d *Driver) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: d.cfg.AccessKey, SecretKey: d.cfg.SecretKey}
}

// instanceName is unique: two clients under one name share a connection and lose
// each other's registrations.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// sender returns the started producer.
func (d *Driver) sender() (rocketmq.Producer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, driver.ErrClosed
	}
	if d.producer != nil {
		return d.producer, nil
	}
	options := []producer.Option{
		producer.WithNameServer(d.cfg.nameServers()),
		producer.WithGroupName(d.cfg.ProducerGroup),
		producer.WithInstanceName(instanceName()),
		producer.WithNamespace(d.cfg.Namespace),
		producer.WithRetry(0), // who publishes decides what is sent again
		producer.WithSendMsgTimeout(d.cfg.SendTimeout),
	}
	if d.cfg.AccessKey != "" {
		options = append(options, producer.WithCredentials(d.credentials()))
	}
	// The client returns a typed nil with an error: only the error may be looked at.
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, fmt.Errorf("make the producer: %w", err)
	}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("start the producer: %w", err)
	}
	d.producer = p
	return p, nil
}

// Close waits for sends under way, at most until ctx ends, and ends the producer.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	p, again := d.producer, d.closed
	d.closed = true
	d.mu.Unlock()
	if again {
		return nil
	}
	idle := make(chan struct{})
	go func() { // ends with the last send, which the client's own timeouts bound
		defer close(idle)
		d.sends.Wait()
	}()
	var errs []error
	select {
	case <-idle:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("close rocketmq producer: sends are still under way: %w", ctx.Err()))
	}
	if p != nil {
		if err := p.Shutdown(); err != nil {
			errs = append(errs, fmt.Errorf("close rocketmq producer: %w", err))
		}
	}
	return errors.Join(errs...)
}

// ErrUnknown: the client cannot tell.
var ErrUnknown = errors.New("the RocketMQ client cannot tell")

// Topics implements driver.Inspector.
func (d *Driver) Topics(context.Context) ([]string, error) {
	return nil, fmt.Errorf("list topics: %w", ErrUnknown)
}

// Group implements driver.Inspector: every figure is unknown.
func (d *Driver) Group(_ context.Context, topic, group string) (driver.GroupState, error) {
	return driver.GroupState{Topic: topic, Group: group}, nil
}
