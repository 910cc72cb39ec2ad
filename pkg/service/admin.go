package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// adminServer is the listener for operators and probes.
type adminServer struct {
	addr   string
	server *http.Server
	done   chan struct{}
}

func (p *Process) serveAdmin(ctx context.Context) (*adminServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.base.AdminAddr)
	if err != nil {
		return nil, fmt.Errorf("admin listener SEAHUB_ADMIN_ADDR (seahub.admin.addr) %q: %w", p.base.AdminAddr, err)
	}
	a := &adminServer{
		addr: listener.Addr().String(),
		server: &http.Server{
			Handler:           p.adminHandler(),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			IdleTimeout:       time.Minute,
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(a.done)
		if err := a.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			zerolog.Ctx(ctx).Error().Err(err).Msg("admin listener failed")
		}
	}()
	return a, nil
}

func (a *adminServer) close(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := a.server.Shutdown(short)
	if err != nil {
		err = a.server.Close() // a client that holds its connection open is no reason to fail
	}
	<-a.done
	return err
}

func (p *Process) adminHandler() http.Handler {
	mux := p.admin // it takes further pages while it serves
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.health.live()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.health.readiness()) })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = writeJSON(w, BuildInfo())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{Registry: p.registry}))
	if p.base.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	}
	return mux
}

func answer(w http.ResponseWriter, r Report) {
	w.Header().Set("Content-Type", "application/json")
	if !r.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = writeJSON(w, r)
}
