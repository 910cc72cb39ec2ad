package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Config says whom to ask and as whom.
type Config struct {
	// NameServers are host:port; a leading http:// is dropped, since the Go client
	// wants one before names.
	NameServers []string
	// Namespace is the instance id that a managed cluster puts before topics and
	// groups; empty without one.
	Namespace string
	Account   Account
	// CallTimeout bounds one request, its dial included. 0: 3 s.
	CallTimeout time.Duration
	// ConnLifetime is the age at which a connection is no longer reused, so that a
	// moved address is noticed. 0: 5 minutes.
	ConnLifetime time.Duration
}

const (
	defaultCallTimeout  = 3 * time.Second
	defaultConnLifetime = 5 * time.Minute
)

// Client asks name servers and brokers. It is safe for concurrent use.
type Client struct {
	cfg    Config
	conns  *pool
	opaque atomic.Int32
}

// New makes a Client. It dials nobody.
func New(cfg Config) (*Client, error) {
	servers := make([]string, 0, len(cfg.NameServers))
	for _, server := range cfg.NameServers {
		server = strings.TrimPrefix(strings.TrimSpace(server), "http://")
		if _, _, err := net.SplitHostPort(server); err != nil {
			return nil, fmt.Errorf("name server %q: want host:port: %w", server, err)
		}
		servers = append(servers, server)
	}
	if len(servers) == 0 {
		return nil, errors.New("no name server is given: want host:port")
	}
	cfg.NameServers = servers
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = defaultCallTimeout
	}
	if cfg.ConnLifetime <= 0 {
		cfg.ConnLifetime = defaultConnLifetime
	}
	return &Client{cfg: cfg, conns: newPool(cfg.ConnLifetime)}, nil
}

// Close closes the idle connections. Calls that are under way end by their own
// bound, and leave no connection behind.
func (c *Client) Close() { c.conns.close() }

// name puts the namespace before a topic or group.
func (c *Client) name(plain string) string {
	if c.cfg.Namespace == "" {
		return plain
	}
	return c.cfg.Namespace + "%" + plain
}

// retryTopic and deadTopic are where a group's retried and given up messages are.
func (c *Client) retryTopic(group string) string { return "%RETRY%" + c.name(group) }
func (c *Client) deadTopic(group string) string  { return "%DLQ%" + c.name(group) }

// request is what a question consists of; accept names codes other than 0 that
// are an answer to it.
type request struct {
	code   int
	fields map[string]string
	body   []byte
	accept []int
}

// ask puts one question to one server.
func (c *Client) ask(ctx context.Context, addr string, r request) (*Command, error) {
	question := &Command{Code: r.code, Opaque: c.opaque.Add(1), Fields: r.fields, Body: r.body}
	c.cfg.Account.Sign(question)
	answer, err := c.exchange(ctx, addr, question)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	if answer.Code == codeOK {
		return answer, nil
	}
	for _, code := range r.accept {
		if answer.Code == code {
			return answer, nil
		}
	}
	return nil, refusal(addr, question, answer, c.cfg.Account)
}

// askNameServers puts a question to the name servers in turn until one answers.
// All of them know the same.
func (c *Client) askNameServers(ctx context.Context, r request) (*Command, error) {
	var errs []error
	for _, server := range c.cfg.NameServers {
		answer, err := c.ask(ctx, server, r)
		if err == nil || !errors.Is(err, ErrUnreachable) || ctx.Err() != nil {
			return answer, err
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no name server answers: %w", errors.Join(errs...))
}

// exchange sends the question on a connection of the pool and reads its answer.
func (c *Client) exchange(ctx context.Context, addr string, question *Command) (*Command, error) {
	bounded, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	for {
		conn, reused, err := c.conns.take(bounded, addr)
		if err != nil {
			return nil, unanswered(ctx, err, false)
		}
		answer, err := conn.exchange(bounded, question)
		c.conns.put(addr, conn, err == nil && bounded.Err() == nil)
		switch {
		case err == nil:
			return answer, nil
		case reused && bounded.Err() == nil && !errors.Is(err, ErrFrame):
			c.conns.forget(addr) // the server restarted: the others are as dead
		default:
			return nil, unanswered(ctx, err, true)
		}
	}
}

// unanswered tells the caller's own end from the server's fault.
func unanswered(ctx context.Context, err error, connected bool) error {
	timeout := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.Is(err, ErrClosed), errors.Is(err, ErrFrame):
		return err
	case timeout && connected:
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}
