-- +goose Up
CREATE TABLE mq_task_health (
  task                   VARCHAR(64)  NOT NULL,
  instance               VARCHAR(128) NOT NULL,
  country                VARCHAR(16)  NOT NULL,
  role                   VARCHAR(16)  NOT NULL,
  failures_since_success BIGINT       NOT NULL DEFAULT 0,
  last_success_at        DATETIME(3)  NULL,
  last_failure_at        DATETIME(3)  NULL,
  last_pass_at           DATETIME(3)  NULL,
  last_confirm_at        DATETIME(3)  NULL,
  event_age_ms           BIGINT       NULL,
  backlog                BIGINT       NULL,
  oldest_age_ms          BIGINT       NULL,
  overdue                BIGINT       NULL,
  flag_version           BIGINT       NULL,
  fallback               TINYINT(1)   NOT NULL DEFAULT 0,
  fallback_since         DATETIME(3)  NULL,
  fallback_reason        VARCHAR(255) NULL,
  fallback_runs          BIGINT       NOT NULL DEFAULT 0,
  updated_at             DATETIME(3)  NOT NULL,
  PRIMARY KEY (task, instance),
  KEY idx_updated (updated_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
