package flags

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/seahub/seahub-mq/pkg/db"
)

// Change is what an operator wants of a flag.
type Change struct {
	Flag        Name
	Country     string
	Enabled     bool
	BasisPoints int
	Who         string
	Why         string
	// Version, when not nil, is the version that the operator looked at (0: no row);
	// the change is refused with ErrConflict if there is another one by now.
	Version *int64
}

func (c Change) validate() error {
	errs := []error{known(c.Flag)}
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Country == "" || len(c.Country) > 16 {
		add("country %q is not usable: give one such as id", c.Country)
	}
	if c.BasisPoints < 0 || c.BasisPoints > FullRollout {
		add("basis points %d are out of range: 0 to %d, %d are all rows", c.BasisPoints, FullRollout, FullRollout)
	}
	if strings.TrimSpace(c.Who) == "" || len(c.Who) > 128 {
		add("who is missing or longer than 128 bytes")
	}
	if strings.TrimSpace(c.Why) == "" || len(c.Why) > 512 {
		add("the reason is missing or longer than 512 bytes")
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidChange, err)
	}
	return nil
}

// Set writes the change and its line of history in one transaction. It is binding
// HandOver later; processes act on it within that time. Of several that change a flag
// at once one wins, the others get ErrConflict.
func Set(ctx context.Context, pool *sql.DB, c Change) (Row, error) {
	if err := c.validate(); err != nil {
		return Row{}, err
	}
	// The hand-over counts on a commit within this time of the change's timestamp.
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return Row{}, fmt.Errorf("set flag %s: begin: %w", c.Flag, err)
	}
	row, err := setIn(ctx, tx, c)
	if err != nil {
		_ = tx.Rollback() // the error at hand says more
		return Row{}, fmt.Errorf("set flag %s of country %s: %w", c.Flag, c.Country, err)
	}
	if err := tx.Commit(); err != nil {
		return Row{}, fmt.Errorf("set flag %s: commit (look whether it took effect): %w", c.Flag, err)
	}
	return row, nil
}

func setIn(ctx context.Context, tx *sql.Tx, c Change) (Row, error) {
	before, err := read(ctx, tx, c)
	if err != nil {
		return Row{}, err
	}
	if c.Version != nil && *c.Version != before.Version {
		return Row{}, fmt.Errorf("%w (it is at version %d, not %d)", ErrConflict, before.Version, *c.Version)
	}
	if before.Version == 0 {
		err = insert(ctx, tx, c)
	} else {
		err = update(ctx, tx, c, before.Version)
	}
	if err != nil {
		return Row{}, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO mq_feature_flag_history ("+columns+") SELECT "+columns+
		" FROM mq_feature_flag WHERE flag = ? AND country = ?", string(c.Flag), c.Country); err != nil {
		return Row{}, fmt.Errorf("write history: %w", err)
	}
	return read(ctx, tx, c)
}

func read(ctx context.Context, tx *sql.Tx, c Change) (Row, error) {
	rows, err := queryRows(ctx, tx, "SELECT "+columns+" FROM mq_feature_flag WHERE flag = ? AND country = ?", string(c.Flag), c.Country)
	if err != nil || len(rows) == 0 {
		return Row{}, err
	}
	return rows[0].Row, nil
}

func insert(ctx context.Context, tx *sql.Tx, c Change) error {
	var random [8]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	_, err := tx.ExecContext(ctx, "INSERT INTO mq_feature_flag ("+columns+`)
		VALUES (?, ?, ?, ?, ?, 1, NOW(3) + INTERVAL ? SECOND, ?, ?, NOW(3))`,
		string(c.Flag), c.Country, c.Enabled, c.BasisPoints, hex.EncodeToString(random[:]), int(HandOver.Seconds()), c.Who, c.Why)
	if db.IsDuplicate(err) {
		return ErrConflict
	}
	if err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	return nil
}

// update is the CAS on the version. The salt stays: with another one a larger rollout
// would take rows away.
func update(ctx context.Context, tx *sql.Tx, c Change, version int64) error {
	res, err := tx.ExecContext(ctx, `UPDATE mq_feature_flag
		SET enabled = ?, rollout_bp = ?, version = version + 1,
		    effective_at = NOW(3) + INTERVAL ? SECOND, updated_by = ?, reason = ?, updated_at = NOW(3)
		WHERE flag = ? AND country = ? AND version = ?`,
		c.Enabled, c.BasisPoints, int(HandOver.Seconds()), c.Who, c.Why, string(c.Flag), c.Country, version)
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if n != 1 {
		return ErrConflict
	}
	return nil
}
