-- +goose Up
-- One row per fingerprint (rule, country, subject): PENDING, FIRING or RESOLVED. episode
-- counts how often it fired.
CREATE TABLE mq_alert (
  fingerprint CHAR(32)     NOT NULL PRIMARY KEY,
  rule        VARCHAR(64)  NOT NULL,
  country     VARCHAR(16)  NOT NULL,
  subject     VARCHAR(128) NOT NULL,
  origin      VARCHAR(16)  NOT NULL,
  severity    VARCHAR(16)  NOT NULL,
  state       VARCHAR(16)  NOT NULL,
  episode     INT          NOT NULL DEFAULT 0,
  value       DOUBLE       NULL,
  told_value  DOUBLE       NULL,
  threshold   DOUBLE       NULL,
  detail_json TEXT         NOT NULL,
  since       DATETIME(3)  NOT NULL,
  clear_since DATETIME(3)  NULL,
  told_at     DATETIME(3)  NULL,
  resolved_at DATETIME(3)  NULL,
  updated_at  DATETIME(3)  NOT NULL,
  KEY idx_state (state, updated_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
