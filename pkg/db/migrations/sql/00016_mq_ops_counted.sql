-- +goose Up
-- The events that a rolling count has taken: one row and one bucket's increment are one
-- transaction. Purged after the redelivery horizon.
CREATE TABLE mq_ops_counted (
  event_id   VARCHAR(255) NOT NULL PRIMARY KEY,
  counted_at DATETIME(3)  NOT NULL,
  KEY idx_counted (counted_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
