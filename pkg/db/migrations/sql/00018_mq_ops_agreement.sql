-- +goose Up
-- Whether the events of a rolling count may be believed: how often in a row a recount by
-- SQL agreed since counting began, and what the last one found.
CREATE TABLE mq_ops_agreement (
  metric        VARCHAR(32)  NOT NULL,
  country       VARCHAR(16)  NOT NULL,
  flag_version  BIGINT       NOT NULL,
  counting_from DATETIME     NOT NULL,
  agreements    INT          NOT NULL DEFAULT 0,
  disagreements INT          NOT NULL DEFAULT 0,
  recounted_at  DATETIME(3)  NOT NULL,
  by_sql        BIGINT       NULL,
  by_events     BIGINT       NULL,
  updated_at    DATETIME(3)  NOT NULL,
  PRIMARY KEY (metric, country)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
