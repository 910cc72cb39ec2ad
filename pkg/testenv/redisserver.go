package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// StartRedis starts a private Redis and waits until it answers. The caller
// closes it.
func StartRedis(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, engine{
		kind:     KindRedis,
		prepare:  func(context.Context, *Server) error { return nil },
		command:  redisCommand,
		identify: identifyRedis,
	}, options)
}

func redisCommand(s *Server) (string, []string, error) {
	path, err := findRedis()
	if err != nil {
		return "", nil, err
	}
	fsync := "everysec"
	if s.options.Durable {
		fsync = "always"
	}
	// argv[0] chooses the role of the binary, see findRedis.
	return path, []string{"redis-server",
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(s.port.number),
		"--daemonize", "no",
		"--dir", s.dir,
		"--save", "",
		"--appendonly", "yes",
		"--appendfsync", fsync,
		"--maxmemory-policy", "noeviction",
	}, nil
}

// findRedis: redis-check-rdb of Debian's redis-tools is the same binary as
// redis-server, which becomes what argv[0] says. redis-tools starts no service,
// the package redis-server would.
func findRedis() (string, error) {
	for _, name := range []string{"redis-server", "redis-check-rdb"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", missing("Redis", "redis-tools", exec.ErrNotFound)
}

// identifyRedis asks for the process id. It speaks the protocol by hand: one
// question needs no client with a pool and goroutines.
func identifyRedis(ctx context.Context, s *Server, pid int) error {
	info, err := redisInfo(ctx, s.addr, "server")
	if err != nil {
		return err
	}
	got, ok := info["process_id"]
	if !ok {
		return fmt.Errorf("%w: it names no process id", ErrForeign)
	}
	if got != strconv.Itoa(pid) {
		return fmt.Errorf("%w: its pid is %s, ours is %d", ErrForeign, got, pid)
	}
	// Our process is there, but while it loads its file it refuses commands.
	persistence, err := redisInfo(ctx, s.addr, "persistence")
	if err != nil {
		return err
	}
	if persistence["loading"] != "0" {
		return errors.New("it is loading its data")
	}
	return nil
}

// redisInfo runs INFO section and returns its lines.
func redisInfo(ctx context.Context, addr, section string) (map[string]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("ask for its identity: %w", err)
	}
	defer conn.Close()
	deadline := time.Now().Add(probeTimeout)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "*2\r\n$4\r\nINFO\r\n$%d\r\n%s\r\n", len(section), section); err != nil {
		return nil, fmt.Errorf("ask for its identity: %w", err)
	}
	reader := bufio.NewReader(conn)
	head, err := reader.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("ask for its identity: %w", err)
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return nil, fmt.Errorf("%w: it answers INFO with %q", ErrForeign, strings.TrimSpace(head))
	}
	info := make(map[string]string)
	for read := 0; read < size; {
		line, err := reader.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("read its identity: %w", err)
		}
		read += len(line)
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info, nil
}
