package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/outbox"
)

// errNotConfirmed: a person saw the number and said no.
var errNotConfirmed = errors.New("not confirmed, nothing was changed")

// confirm asks a person at a terminal whether so many rows are meant. Who calls from a
// script or with --yes is not asked.
func confirm(ctx context.Context, cmd *cobra.Command, store *outbox.Store, f outbox.Filter, done string) error {
	in := cmd.InOrStdin()
	if !isTerminal(in) {
		return nil
	}
	count, err := store.Count(ctx, f)
	if err != nil {
		return err
	}
	return ask(ctx, in, cmd.ErrOrStderr(), fmt.Sprintf("%s %s events will be %s. Go on? [y/N] ", count, f.Status, done))
}

func ask(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	if _, err := fmt.Fprint(out, question); err != nil {
		return err
	}
	answers := make(chan string, 1)
	go func() { // ends with the process when nobody answers
		answer, _ := bufio.NewReader(in).ReadString('\n') // an end without an answer is a no
		answers <- answer
	}()
	var answer string
	select {
	case answer = <-answers:
	case <-ctx.Done():
		return errors.Join(errNotConfirmed, context.Cause(ctx))
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// isTerminal: a character device other than /dev/null.
func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// exitCodes ends the help of every command.
const exitCodes = `
Exit codes: 0 done; 1 failed, interrupted, or not as asked for (the message says how
far it came; a command that was interrupted is given again); 2 called wrongly.`

func withExitCodes(cmds ...*cobra.Command) []*cobra.Command {
	for _, c := range cmds {
		if c.Long == "" {
			c.Long = c.Short + "."
		}
		c.Long += "\n" + exitCodes
		withExitCodes(c.Commands()...)
	}
	return cmds
}
