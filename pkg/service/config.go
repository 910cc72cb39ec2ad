package service

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Base is the part of the configuration that all services share. A service's
// configuration struct has it as a field named Base.
type Base struct {
	Env          string `env:"SEAHUB_ENV" key:"seahub.env" required:"true" pattern:"^[a-z][a-z0-9-]{0,31}$" help:"environment, such as id-test or id-prod"`
	Country      string `env:"SEAHUB_COUNTRY" key:"seahub.country" required:"true" pattern:"^[a-z]{2}$" help:"country whose events and rows this process works on, such as id"`
	LogLevel     string `env:"SEAHUB_LOG_LEVEL" envDefault:"info" key:"seahub.log.level" oneof:"debug,info,warn,error" help:"least severe log lines to write"`
	LogFormat    string `env:"SEAHUB_LOG_FORMAT" envDefault:"json" key:"seahub.log.format" oneof:"json,console" help:"json for machines, console for people"`
	AdminAddr    string `env:"SEAHUB_ADMIN_ADDR" envDefault:":9090" key:"seahub.admin.addr" help:"listener of /livez, /readyz, /metrics and /version; port 0 takes a free one"`
	Pprof        bool   `env:"SEAHUB_ADMIN_PPROF" envDefault:"false" key:"seahub.admin.pprof" help:"serve /debug/pprof on the admin listener"`
	Tracing      Tracing
	DrainTimeout time.Duration `env:"SEAHUB_DRAIN_TIMEOUT" envDefault:"25s" key:"seahub.drain.timeout" min:"1s" max:"10m" help:"how long running work may go on after the order to stop"`
}

// Validate checks what tags cannot say.
func (b Base) Validate() error {
	_, port, err := net.SplitHostPort(b.AdminAddr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("SEAHUB_ADMIN_ADDR (seahub.admin.addr): %q is not of the form host:port or :port", b.AdminAddr)
	}
	return nil
}

// ErrConfig is wrapped by every configuration error.
var ErrConfig = errors.New("configuration is not usable")

// load fills cfg, a pointer to a struct, from environ ("NAME=value" strings). It
// reports every problem at once. Warnings are about names that nobody reads.
func load(cfg any, environ []string) (warnings []string, err error) {
	keys, err := keysOf(cfg)
	if err != nil {
		return nil, err
	}
	given := environMap(environ)
	values, problems := canonical(keys, given)
	bad, parsed := parse(cfg, keys, values)
	problems = append(append(problems, parsed...), crossChecks(cfg, bad)...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w:\n%w", ErrConfig, errors.Join(problems...))
	}
	return unknownNames(keys, given), nil
}

// environ is the process's environment; tests hand in their own.
func environ() []string { return os.Environ() }
