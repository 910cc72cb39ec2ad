-- +goose Up
-- The app's table, created only where it does not exist yet. Names and meaning of the
-- first ten columns belong to the app; migrations.Adopt adds the rest to a table that
-- the app made itself.
CREATE TABLE IF NOT EXISTS outbox_event (
  id             VARCHAR(64) NOT NULL PRIMARY KEY,
  event_id       VARCHAR(64) NOT NULL,
  event_type     VARCHAR(64) NOT NULL,
  aggregate_type VARCHAR(32) NOT NULL,
  aggregate_id   VARCHAR(64) NOT NULL,
  payload_json   TEXT        NOT NULL,
  status         VARCHAR(16) NOT NULL DEFAULT 'PENDING',
  retry_count    INT         NOT NULL DEFAULT 0,
  created_at     DATETIME(3) NOT NULL,
  published_at   DATETIME(3) NULL,
  available_at   DATETIME(3) NULL,
  requeued_at    DATETIME(3) NULL,
  last_error     VARCHAR(512) NULL,
  traceparent    VARCHAR(55) NULL,
  request_id     VARCHAR(64) NULL,
  UNIQUE KEY uk_event_id (event_id),
  KEY idx_status_created (status, created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
