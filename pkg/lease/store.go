package lease

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// The statements. fence is part of every condition of a holder, so that an owner
// string that were ever used twice could still not touch a later acquisition.
const (
	sqlTake = `UPDATE mq_lease
		SET owner = ?, fence = fence + 1, locked_at = NOW(3), locked_until = NOW(3) + INTERVAL ? MICROSECOND
		WHERE name = ? AND locked_until <= NOW(3)`
	sqlInsert = `INSERT INTO mq_lease (name, owner, fence, locked_at, locked_until)
		VALUES (?, ?, 1, NOW(3), NOW(3) + INTERVAL ? MICROSECOND)`
	sqlFence = `SELECT fence FROM mq_lease WHERE name = ? AND owner = ? AND locked_until > NOW(3)`
	sqlRenew = `UPDATE mq_lease SET locked_until = NOW(3) + INTERVAL ? MICROSECOND
		WHERE name = ? AND owner = ? AND fence = ? AND locked_until > NOW(3)`
	sqlRelease = `UPDATE mq_lease SET locked_until = NOW(3)
		WHERE name = ? AND owner = ? AND fence = ? AND locked_until > NOW(3)`
	sqlList = `SELECT name, owner, fence, locked_at, locked_until, locked_until > NOW(3),
		TIMESTAMPDIFF(MICROSECOND, locked_at, NOW(3))
		FROM mq_lease WHERE name LIKE ? ORDER BY name`
)

// Info is a row of mq_lease for people.
type Info struct {
	Name        string        `json:"name"`
	Owner       string        `json:"owner"`
	Fence       int64         `json:"fence"`
	LockedAt    time.Time     `json:"locked_at"`
	LockedUntil time.Time     `json:"locked_until"`
	Held        bool          `json:"held"`
	HeldFor     time.Duration `json:"held_for_ns"`
}

// List returns the leases whose names begin with prefix.
func (s *Store) List(ctx context.Context, prefix string) ([]Info, error) {
	rows, err := s.db.QueryContext(ctx, sqlList, likePrefix(prefix))
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Info
	for rows.Next() {
		i, err := scanInfo(rows)
		if err != nil {
			return nil, fmt.Errorf("list leases: %w", err)
		}
		out = append(out, i)
	}
	return out, rows.Err()
}

func scanInfo(rows *sql.Rows) (Info, error) {
	var i Info
	var us int64
	err := rows.Scan(&i.Name, &i.Owner, &i.Fence, &i.LockedAt, &i.LockedUntil, &i.Held, &us)
	if i.Held {
		i.HeldFor = time.Duration(us) * time.Microsecond
	}
	return i, err
}

// likePrefix escapes what LIKE would interpret.
func likePrefix(prefix string) string {
	out := make([]byte, 0, len(prefix)+1)
	for i := range len(prefix) {
		if c := prefix[i]; c == '%' || c == '_' || c == '\\' {
			out = append(out, '\\')
		}
		out = append(out, prefix[i])
	}
	return string(append(out, '%'))
}
