package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// watchTransitions makes the database itself keep a book of every change to EXPIRED.
func (b *bench) watchTransitions(t testing.TB) {
	t.Helper()
	b.s.Exec(t, "CREATE TABLE transitions (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(64), was VARCHAR(16), early INT)")
	b.s.Exec(t, `CREATE TRIGGER watch AFTER UPDATE ON user_coupons FOR EACH ROW
		BEGIN
			IF NEW.status = 'EXPIRED' AND OLD.status <> 'EXPIRED' THEN
				INSERT INTO transitions (id, was, early) VALUES (NEW.id, OLD.status, OLD.expires_at > NOW(3));
			END IF;
		END`)
}

// judge demands that each coupon was expired at most once, none early, and none that
// had been redeemed.
func (b *bench) judge(t testing.TB) {
	t.Helper()
	require.Zero(t, b.count(t, "(SELECT id FROM transitions GROUP BY id HAVING COUNT(*) > 1) AS twice"), "expired twice")
	require.Zero(t, b.count(t, "transitions WHERE early = 1"), "expired early")
	require.Zero(t, b.count(t, "transitions WHERE was NOT IN ('CLAIMABLE', 'ISSUED', 'ACTIVE')"), "expired from a final status")
}
