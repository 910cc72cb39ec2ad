-- +goose Up
-- When the campaigns of a country were listed last, and when the next round is due.
CREATE TABLE mq_campaign_listing (
  country    VARCHAR(16)  NOT NULL PRIMARY KEY,
  round      VARCHAR(32)  NOT NULL,
  due_at     DATETIME(3)  NOT NULL,
  listed_at  DATETIME(3)  NULL,
  campaigns  INT          NOT NULL DEFAULT 0,
  started    INT          NOT NULL DEFAULT 0,
  truncated  TINYINT(1)   NOT NULL DEFAULT 0,
  failures   INT          NOT NULL DEFAULT 0,
  last_error VARCHAR(512) NULL,
  updated_at DATETIME(3)  NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
