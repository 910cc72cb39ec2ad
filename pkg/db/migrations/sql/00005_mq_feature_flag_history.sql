-- +goose Up
CREATE TABLE mq_feature_flag_history (
  id           BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  flag         VARCHAR(64)  NOT NULL,
  country      VARCHAR(16)  NOT NULL,
  enabled      TINYINT(1)   NOT NULL,
  rollout_bp   INT          NOT NULL,
  salt         VARCHAR(64)  NOT NULL,
  version      BIGINT       NOT NULL,
  effective_at DATETIME(3)  NOT NULL,
  updated_by   VARCHAR(128) NOT NULL,
  reason       VARCHAR(512) NOT NULL,
  updated_at   DATETIME(3)  NOT NULL,
  UNIQUE KEY uk_flag_version (flag, country, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
