package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// Driver is the RocketMQ side of an event bus. It is safe for concurrent use and
// implements driver.Sender, Receiver, Inspector and Provisioner.
type Driver struct {
	cfg     Config
	country string
	ask     *remoting.Client
	metrics *metrics
	pace    pace
	// slots bounds the sends under way, those included that a caller has given up.
	slots  chan struct{}
	sends  sync.WaitGroup
	topics topicBook
	// first has a token: who takes it sends a topic's first message alone.
	first chan struct{}

	mu       sync.Mutex
	producer rocketmq.Producer // made by the first send: a consumer needs none
	closed   atomic.Bool       // set under mu
}

var (
	_ driver.Sender      = (*Driver)(nil)
	_ driver.Receiver    = (*Driver)(nil)
	_ driver.Inspector   = (*Driver)(nil)
	_ driver.Provisioner = (*Driver)(nil)
)

// Options are what New needs beside the configuration.
type Options struct {
	// Country ("id") is in the names of this deployment's topics.
	Country string
	// Registerer, when not nil, exports the driver's metrics.
	Registerer prometheus.Registerer
	// Logger takes the client library's own lines.
	Logger zerolog.Logger
}

// New makes a driver. It dials nothing: an error is always one of configuration.
func New(cfg Config, o Options) (*Driver, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.Validate()}
	if o.Country == "" {
		errs = append(errs, errors.New("the country names the topics: it must be set"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	setClientGlobals(o.Logger)
	ask, err := askClient(cfg, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: cfg, country: o.Country, ask: ask, metrics: newMetrics(o.Registerer),
		slots: make(chan struct{}, cfg.SendWorkers), first: make(chan struct{}, 1),
	}
	d.topics.names = map[string]topicState{d.eventTopic(): {}}
	return d, nil
}

func askClient(cfg Config, namespace string) (*remoting.Client, error) {
	c, err := remoting.New(remoting.Config{
		NameServers: cfg.nameServers(), Namespace: namespace, CallTimeout: cfg.CallTimeout,
		Account: remoting.Account{AccessKey: cfg.AccessKey, SecretKey: cfg.SecretKey},
	})
	if err != nil {
		return nil, fmt.Errorf("SEAHUB_ROCKETMQ_NAME_SERVERS (seahub.rocketmq.name-servers): %w", err)
	}
	return c, nil
}

func (d *Driver) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: d.cfg.AccessKey, SecretKey: d.cfg.SecretKey}
}

// sender returns the started producer.
func (d *Driver) sender() (rocketmq.Producer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
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
		// What is stored is what was sent: operators read it, and small JSON gains
		// nothing.
		producer.WithCompressMsgBodyOverHowmuch(driver.MaxBodyBytes + 1),
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
	p, again := d.producer, d.closed.Swap(true)
	d.mu.Unlock()
	if again {
		return nil
	}
	defer d.ask.Close()
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
