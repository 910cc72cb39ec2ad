-- +goose Up
-- The current or last round of each campaign. state: PENDING, RUNNING, then DONE or
-- FAILED; the next round starts from those two only. fence grows with every lease.
CREATE TABLE mq_campaign_round (
  country        VARCHAR(16)     NOT NULL,
  campaign_id    VARCHAR(32)     NOT NULL,
  round          VARCHAR(32)     NOT NULL,
  state          VARCHAR(16)     NOT NULL,
  created_at     DATETIME(3)     NOT NULL,
  due_at         DATETIME(3)     NOT NULL,
  owner          VARCHAR(128)    NULL,
  lease_until    DATETIME(3)     NULL,
  fence          BIGINT UNSIGNED NOT NULL DEFAULT 0,
  failures       INT             NOT NULL DEFAULT 0,
  page_token     VARCHAR(1024)   NOT NULL DEFAULT '',
  pages          INT             NOT NULL DEFAULT 0,
  restarts       INT             NOT NULL DEFAULT 0,
  reported_total INT             NOT NULL DEFAULT 0,
  products       INT             NOT NULL DEFAULT 0,
  gone           INT             NOT NULL DEFAULT 0,
  truncated      TINYINT(1)      NOT NULL DEFAULT 0,
  complete       TINYINT(1)      NOT NULL DEFAULT 0,
  last_error     VARCHAR(512)    NULL,
  finished_at    DATETIME(3)     NULL,
  updated_at     DATETIME(3)     NOT NULL,
  PRIMARY KEY (country, campaign_id),
  KEY idx_state_due (country, state, due_at),
  KEY idx_state_lease (country, state, lease_until)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
