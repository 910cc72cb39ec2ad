package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// ErrNested: a transaction was asked for inside a transaction; pass the outer one on.
var ErrNested = errors.New("transaction inside a transaction")

// txAttempts bounds how often a unit is run when the server picks it as the victim.
const txAttempts = 4

// InTx runs f in one transaction and commits when it returns nil. When the server
// gives up a conflict (deadlock, lock timeout, changed record) the whole of f is run
// again, up to 4 times in all with jitter; f must therefore keep nothing from an
// earlier run. An error of COMMIT leaves open whether the transaction took effect:
// callers rely on unique keys, not on the absence of an error.
//
// Nesting is refused: inside f, use tx.
func InTx(ctx context.Context, g *gorm.DB, f func(tx *gorm.DB) error) error {
	if _, nested := g.Statement.ConnPool.(gorm.TxCommitter); nested {
		return ErrNested
	}
	wait := backoff.Policy{Base: 5 * time.Millisecond, Max: 100 * time.Millisecond}
	for attempt := 1; ; attempt++ {
		err := g.WithContext(ctx).Transaction(f)
		if err == nil || !IsRetryable(err) || attempt == txAttempts {
			return err
		}
		if !backoff.Sleep(ctx, wait.Delay(attempt)) {
			return fmt.Errorf("%w (while retrying: %w)", ctx.Err(), err)
		}
	}
}
