-- +goose Up
CREATE TABLE mq_feature_flag (
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
  PRIMARY KEY (flag, country)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
