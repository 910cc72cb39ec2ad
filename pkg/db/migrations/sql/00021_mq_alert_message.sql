-- +goose Up
-- What is to be told, one row per message and route, written in the transaction that
-- changes the alerts. severity_rank 0 is critical; QUEUED, SENT or REFUSED.
CREATE TABLE mq_alert_message (
  id            BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  country       VARCHAR(16)  NOT NULL,
  route         VARCHAR(16)  NOT NULL,
  severity_rank INT          NOT NULL,
  kind          VARCHAR(16)  NOT NULL,
  rule          VARCHAR(64)  NOT NULL,
  message_json  MEDIUMTEXT   NOT NULL,
  status        VARCHAR(16)  NOT NULL DEFAULT 'QUEUED',
  attempts      INT          NOT NULL DEFAULT 0,
  last_error    VARCHAR(512) NULL,
  created_at    DATETIME(3)  NOT NULL,
  sent_at       DATETIME(3)  NULL,
  KEY idx_queue (country, route, status, severity_rank, id),
  KEY idx_created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
