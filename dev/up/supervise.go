package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/seahub/seahub-mq/dev/lockdir"
	"github.com/seahub/seahub-mq/dev/stack"
)

// Supervise starts the system, owns it until ctx ends and stops it. It is the body of
// the detached process; log takes a few lines.
func Supervise(ctx context.Context, o Options, log io.Writer) (err error) {
	lock, err := lockdir.Acquire(o.Dir)
	if err != nil {
		return fmt.Errorf("another system is up: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	state, err := newState()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(o.Dir, "logs")); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	if err := state.write(o.Dir); err != nil {
		return err
	}
	s := &supervisor{o: o, state: state, log: log}
	err = s.start(ctx)
	if err == nil {
		s.state.Phase, s.state.Step = Ready, ""
		if err = s.state.write(o.Dir); err == nil {
			s.say("everything is ready")
			s.watchServers(ctx)
		}
	}
	s.say("stopping")
	err = errors.Join(err, s.stop(ctx))
	if err == nil {
		return os.Remove(statePath(o.Dir))
	}
	s.state.Phase, s.state.Error = Failed, err.Error()
	return errors.Join(err, s.state.write(o.Dir))
}

type supervisor struct {
	o     Options
	state State
	log   io.Writer
	stack *stack.Stack
}

func (s *supervisor) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.log, format+"\n", args...)
}

// step shows in the state what is being done, for the command that waits.
func (s *supervisor) step(what string) {
	s.say("%s", what)
	s.state.Step = what
	if err := s.state.write(s.o.Dir); err != nil {
		s.say("%v", err)
	}
}

func (s *supervisor) start(ctx context.Context) error {
	var err error
	s.stack, err = stack.Start(ctx, stack.Options{
		Dir: s.o.Dir, Root: s.o.Root, Durable: true, Progress: s.step,
		Binaries: stack.Binaries(filepath.Join(s.o.Dir, "bin"), stack.Services()...), // Up built them
		Ports:    stack.Ports{MariaDB: s.o.port(offsetMariaDB), Redis: s.o.port(offsetRedis), FCM: s.o.port(offsetFCM)},
	})
	if err != nil {
		return err
	}
	s.step("starting the services")
	if err := s.startServices(ctx); err != nil {
		return err
	}
	s.state.DSN, s.state.Redis, s.state.FCM = s.stack.DSN, s.stack.Redis.Addr(), s.stack.FCM.URL()
	s.state.Env, s.state.Binaries = s.stack.Env, filepath.Join(s.o.Dir, "bin")
	return nil
}

func (s *supervisor) startServices(ctx context.Context) error {
	all := instances()
	errs := make([]error, len(all))
	started := make([]ServiceState, len(all))
	var wg sync.WaitGroup
	for i, in := range all {
		wg.Go(func() {
			var svc *stack.Service
			if svc, errs[i] = s.startService(ctx, i, in); errs[i] != nil {
				return
			}
			started[i] = ServiceState{Name: in.name, Admin: svc.Admin, Pid: svc.Pid()}
			go s.watch(svc) // ends with the service
		})
	}
	wg.Wait()
	s.state.Services = started
	return errors.Join(errs...)
}

func (s *supervisor) startService(ctx context.Context, i int, in instance) (*stack.Service, error) {
	env := map[string]string{}
	if port := s.o.port(offsetServices + i); port != 0 {
		env["SEAHUB_ADMIN_ADDR"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	svc, err := s.stack.StartService(ctx, in.service, in.name, env, in.args...)
	if err != nil {
		return nil, err
	}
	return svc, svc.AwaitReady(ctx)
}

// watch says when a service ends; it is not started again, so that its end shows.
func (s *supervisor) watch(svc *stack.Service) {
	code := svc.ExitCode()
	s.say("%s (pid %d) ended with code %d; see %s", svc.Name, svc.Pid(), code, svc.Log)
}

func (s *supervisor) stop(ctx context.Context) error {
	if s.stack == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return s.stack.Close(ctx)
}
