package cli_test

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/test/bench/internal/cli"
)

func TestFlagsBeatVariablesBeatDefaults(t *testing.T) {
	parse := func(args ...string) (size, rounds int, db string, err error) {
		f := flag.NewFlagSet("x", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		cli.Int(f, &size, "body-size", 400, "bytes")
		cli.Int(f, &rounds, "rounds", 5, "how often")
		cli.Choice(f, &db, "db", "server", "mariadb", "mysql")
		err = cli.Parse(f, args)
		return size, rounds, db, err
	}
	t.Setenv("BENCH_BODY_SIZE", "17")
	t.Setenv("BENCH_ROUNDS", "3")
	size, rounds, db, err := parse("--rounds=2")
	require.NoError(t, err)
	require.Equal(t, []any{17, 2, "mariadb"}, []any{size, rounds, db})

	for _, wrong := range []string{"--rounds=0", "--rounds=x", "--db=oracle", "--what", "rest"} {
		_, _, _, err := parse(wrong)
		require.ErrorIs(t, err, cli.ErrUsage, wrong)
	}
	t.Setenv("BENCH_ROUNDS", "many")
	_, _, _, err = parse()
	require.ErrorIs(t, err, cli.ErrUsage)
	require.ErrorContains(t, err, "BENCH_ROUNDS")
}

func TestHelpNamesEveryFlag(t *testing.T) {
	f := flag.NewFlagSet("bench-x measures x", flag.ContinueOnError)
	var out strings.Builder
	f.SetOutput(&out)
	var n int
	cli.Int(f, &n, "rounds", 5, "how often")
	require.ErrorIs(t, cli.Parse(f, []string{"--help"}), flag.ErrHelp)
	require.Contains(t, out.String(), "bench-x measures x")
	require.Contains(t, out.String(), "-rounds")
}
