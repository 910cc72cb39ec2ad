package flags

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// writePod replaces what the process said before. The time since when is the
// database's, and moves only when what is said is something else; it comes first since
// the assignments happen in this order.
func writePod(ctx context.Context, db *sql.DB, country string, self Self, now seen) error {
	_, err := db.ExecContext(ctx, `INSERT INTO mq_flag_seen (flag, country, instance, role, version, goes_by, since, seen_at)
		VALUES (?, ?, ?, ?, ?, ?, NOW(3), NOW(3))
		ON DUPLICATE KEY UPDATE
		 since = IF(version = VALUES(version) AND goes_by = VALUES(goes_by), since, NOW(3)),
		 role = VALUES(role), version = VALUES(version), goes_by = VALUES(goes_by), seen_at = NOW(3)`,
		string(self.Flag), country, self.Instance, self.Role, now.version, string(now.goesBy))
	if err != nil {
		return fmt.Errorf("announce the version of flag %s: %w", self.Flag, err)
	}
	return nil
}

func deletePod(ctx context.Context, db *sql.DB, country string, self Self) error {
	_, err := db.ExecContext(ctx, "DELETE FROM mq_flag_seen WHERE flag = ? AND country = ? AND instance = ?",
		string(self.Flag), country, self.Instance)
	if err != nil {
		return fmt.Errorf("take back the word on flag %s: %w", self.Flag, err)
	}
	return nil
}

func forgetPods(ctx context.Context, db *sql.DB, age time.Duration) error {
	_, err := db.ExecContext(ctx, "DELETE FROM mq_flag_seen WHERE seen_at < NOW(3) - INTERVAL ? MICROSECOND LIMIT 1000", age.Microseconds())
	if err != nil {
		return fmt.Errorf("forget processes that are gone: %w", err)
	}
	return nil
}

// Pods returns the processes that said lately by what they go, of all flags and
// countries.
func Pods(ctx context.Context, db *sql.DB) (out []Pod, err error) {
	rows, err := db.QueryContext(ctx, `SELECT flag, country, instance, role, version, goes_by,
			TIMESTAMPDIFF(MICROSECOND, since, NOW(3)), TIMESTAMPDIFF(MICROSECOND, seen_at, NOW(3))
		FROM mq_flag_seen WHERE seen_at > NOW(3) - INTERVAL ? MICROSECOND
		ORDER BY flag, country, role, instance`, PodAlive.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("read who goes by which version: %w", err)
	}
	defer func() {
		if closeErr := rows.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("read who goes by which version: %w", closeErr)
		}
	}()
	for rows.Next() {
		var p Pod
		var since, seen int64
		if err := rows.Scan(&p.Flag, &p.Country, &p.Instance, &p.Role, &p.Version, &p.GoesBy, &since, &seen); err != nil {
			return nil, fmt.Errorf("read who goes by which version: %w", err)
		}
		p.Since, p.Seen = time.Duration(since)*time.Microsecond, time.Duration(seen)*time.Microsecond
		out = append(out, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read who goes by which version: %w", err)
	}
	return out, nil
}

// PodsOf returns those of one flag and country.
func PodsOf(ctx context.Context, db *sql.DB, flag Name, country string) ([]Pod, error) {
	all, err := Pods(ctx, db)
	var out []Pod
	for _, p := range all {
		if p.Flag == flag && p.Country == country {
			out = append(out, p)
		}
	}
	return out, err
}
