package testenv

import (
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"
)

// existing returns the server that the environment names for this kind, or nil.
func existing(kind Kind) (*Server, error) {
	switch kind {
	case KindMariaDB:
		return existingSQL(kind, "SEAHUB_TEST_MARIADB_DSN")
	case KindMySQL:
		return existingSQL(kind, "SEAHUB_TEST_MYSQL_DSN")
	case KindRedis:
		if addr := os.Getenv("SEAHUB_TEST_REDIS_ADDR"); addr != "" {
			return externalServer(kind, addr), nil
		}
	}
	return nil, nil
}

func existingSQL(kind Kind, variable string) (*Server, error) {
	dsn := os.Getenv(variable)
	if dsn == "" {
		return nil, nil
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: want user:password@tcp(host:port)/: %w", variable, err)
	}
	if config.Net != "tcp" {
		return nil, fmt.Errorf("%s: want user:password@tcp(host:port)/, got a %s address", variable, config.Net)
	}
	s := externalServer(kind, config.Addr)
	s.account = config.User
	if config.Passwd != "" {
		s.account += ":" + config.Passwd
	}
	return s, nil
}

func externalServer(kind Kind, addr string) *Server {
	return &Server{engine: engine{kind: kind}, addr: addr, account: "root", refusal: ErrExternal}
}
