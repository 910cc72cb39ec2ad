-- +goose Up
-- dedup_key is SHA-256 over group and event_id (over group and body where a message
-- carries no key): one row per event and group, however often it dies.
CREATE TABLE mq_dead_letter (
  id             BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  dedup_key      CHAR(64)     NOT NULL,
  consumer_group VARCHAR(64)  NOT NULL,
  topic          VARCHAR(127) NOT NULL,
  tag            VARCHAR(64)  NOT NULL,
  event_id       VARCHAR(255) NOT NULL,
  body           MEDIUMBLOB   NOT NULL,
  headers_json   TEXT         NOT NULL,
  attempts       INT          NOT NULL,
  reason         VARCHAR(255) NOT NULL,
  last_error     VARCHAR(512) NOT NULL,
  status         VARCHAR(16)  NOT NULL DEFAULT 'OPEN',
  deaths         INT          NOT NULL DEFAULT 1,
  created_at     DATETIME(3)  NOT NULL,
  updated_at     DATETIME(3)  NOT NULL,
  resolved_at    DATETIME(3)  NULL,
  resolved_by    VARCHAR(128) NULL,
  resolved_why   VARCHAR(512) NULL,
  UNIQUE KEY uk_dedup (dedup_key),
  KEY idx_status_group (status, consumer_group, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
