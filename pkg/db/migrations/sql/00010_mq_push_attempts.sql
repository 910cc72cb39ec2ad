-- +goose Up
-- One row per request to the push provider. state: SENDING before the request leaves,
-- then ACCEPTED, DEAD_TOKEN or REJECTED (final for the device) or RETRY or UNKNOWN.
CREATE TABLE mq_push_attempts (
  id          BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  push_id     VARCHAR(64)  NOT NULL,
  device_id   VARCHAR(64)  NOT NULL,
  attempt     INT          NOT NULL,
  owner       VARCHAR(128) NOT NULL,
  state       VARCHAR(16)  NOT NULL,
  provider_id VARCHAR(255) NULL,
  error_code  VARCHAR(64)  NULL,
  started_at  DATETIME(3)  NOT NULL,
  finished_at DATETIME(3)  NULL,
  UNIQUE KEY uk_push_device_attempt (push_id, device_id, attempt),
  KEY idx_started (started_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
