package outbox

import "context"

// findStatements have no index to use in mq_dead_letter, which is small by its nature. Texts of
// the two kinds of tables may have collations that cannot be compared, so each part is
// read by itself.
func findStatements() []string {
	return []string{
		`SELECT 'outbox_event', status, event_type, aggregate_type, aggregate_id, '', retry_count, created_at, published_at,
		available_at, requeued_at, IF(status = 'PUBLISHED', '', COALESCE(last_error, '')) FROM outbox_event WHERE event_id = ?`,
		`SELECT 'mq_delayed_event', 'DELAYED', event_type, aggregate_type, aggregate_id, '', 0, created_at, NULL,
		due_at, NULL, '' FROM mq_delayed_event WHERE event_id = ?`,
		`SELECT 'mq_outbox_archive', 'DISCARDED', event_type, aggregate_type, aggregate_id, '', retry_count, created_at, published_at,
		NULL, NULL, CONCAT(archived_by, ': ', reason, COALESCE(CONCAT('; ', last_error), '')) FROM mq_outbox_archive WHERE event_id = ?`,
		`SELECT 'mq_dead_letter', status, tag, '', '', consumer_group, attempts, updated_at, NULL,
		NULL, NULL, CONCAT(reason, IF(last_error = '', '', CONCAT(': ', last_error))) FROM mq_dead_letter WHERE event_id = ?`,
	}
}

func (s *Store) find(ctx context.Context, eventID string) ([]Sighting, error) {
	var found []Sighting
	for _, query := range findStatements() {
		part, err := s.findIn(ctx, query, eventID)
		if err != nil {
			return nil, err
		}
		found = append(found, part...)
	}
	return found, nil
}

func (s *Store) findIn(ctx context.Context, query, eventID string) ([]Sighting, error) {
	rows, err := s.db.QueryContext(ctx, query, eventID)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var found []Sighting
	for rows.Next() {
		var g Sighting
		if err := rows.Scan(&g.Table, &g.State, &g.Type, &g.Aggregate, &g.AggregateID, &g.Group, &g.Attempts, &g.Written,
			&g.Published, &g.Next, &g.Requeued, &g.Why); err != nil {
			return nil, err
		}
		found = append(found, g)
	}
	return found, rows.Err()
}
