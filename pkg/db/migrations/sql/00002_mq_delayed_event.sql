-- +goose Up
CREATE TABLE mq_delayed_event (
  id             VARCHAR(64) NOT NULL PRIMARY KEY,
  event_id       VARCHAR(64) NOT NULL,
  event_type     VARCHAR(64) NOT NULL,
  aggregate_type VARCHAR(32) NOT NULL,
  aggregate_id   VARCHAR(64) NOT NULL,
  payload_json   TEXT        NOT NULL,
  due_at         DATETIME(3) NOT NULL,
  created_at     DATETIME(3) NOT NULL,
  traceparent    VARCHAR(55) NULL,
  request_id     VARCHAR(64) NULL,
  UNIQUE KEY uk_event_id (event_id),
  KEY idx_due (due_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
