-- +goose Up
CREATE TABLE mq_outbox_archive (
  id             VARCHAR(64) NOT NULL PRIMARY KEY,
  event_id       VARCHAR(64) NOT NULL,
  event_type     VARCHAR(64) NOT NULL,
  aggregate_type VARCHAR(32) NOT NULL,
  aggregate_id   VARCHAR(64) NOT NULL,
  payload_json   TEXT        NOT NULL,
  status         VARCHAR(16) NOT NULL,
  retry_count    INT         NOT NULL,
  created_at     DATETIME(3) NOT NULL,
  published_at   DATETIME(3) NULL,
  last_error     VARCHAR(512) NULL,
  archived_at    DATETIME(3) NOT NULL,
  archived_by    VARCHAR(128) NOT NULL,
  reason         VARCHAR(512) NOT NULL,
  KEY idx_event_id (event_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
