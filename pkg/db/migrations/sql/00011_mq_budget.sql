-- +goose Up
-- One row per rate budget. next_at is when the next unit is free, start_at and
-- granted are what the last grant came to (see package budget).
CREATE TABLE mq_budget (
  name         VARCHAR(64)     NOT NULL PRIMARY KEY,
  rate         DOUBLE          NOT NULL,
  rate_at      DATETIME(6)     NOT NULL,
  next_at      DATETIME(6)     NOT NULL,
  start_at     DATETIME(6)     NOT NULL,
  granted      BIGINT UNSIGNED NOT NULL DEFAULT 0,
  paused_until DATETIME(6)     NOT NULL,
  slowed_at    DATETIME(6)     NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
