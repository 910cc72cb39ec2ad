package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/service"
)

// authoriseCommand turns the code of a person's authorisation into the tokens that all
// replicas use. The code comes by standard input, since arguments show in process lists.
func authoriseCommand(cfg *Config) *cobra.Command {
	return &cobra.Command{
		Use:   "authorise",
		Short: "Store the tokens for an authorisation code, read from standard input",
		Long: `Store the tokens for an authorisation code, read from standard input.

The code is what TikTok sends back after a person has authorised the app as a partner;
it is good for half an hour, and once. The tokens replace those that are stored; running
consumers use them within seconds.

  campaign-consumer authorise < code.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: unexpected argument: give the code by standard input", service.ErrUsage)
			}
			line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
			code := strings.TrimSpace(line)
			if code == "" && (err == nil || errors.Is(err, io.EOF)) {
				return fmt.Errorf("%w: no code on standard input", service.ErrUsage)
			}
			if code == "" {
				return fmt.Errorf("read the code: %w", err)
			}
			if err := authorise(cmd.Context(), *cfg, code); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "authorised: the tokens are stored")
			return err
		},
	}
}

func authorise(ctx context.Context, cfg Config, code string) (err error) {
	gdb, err := db.Open(cfg.DB)
	if err != nil {
		return err
	}
	pool, err := db.Pool(gdb)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	h := newHTTP()
	defer h.CloseIdleConnections()
	k := &tokenKeeper{cfg: cfg, http: h, seen: func(string, string, time.Duration) {}}
	fresh, err := k.request(ctx, "token", url.Values{"auth_code": {code}, "grant_type": {"authorized_code"}})
	if err != nil {
		return err
	}
	st := store{db: gdb, country: cfg.Base.Country, appKey: cfg.AppKey}
	return st.firstToken(writing(ctx), fresh)
}
