-- +goose Up
CREATE TABLE mq_audit (
  id          BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at          DATETIME(3)  NOT NULL,
  who         VARCHAR(128) NOT NULL,
  action      VARCHAR(64)  NOT NULL,
  target      VARCHAR(255) NOT NULL,
  filter_json TEXT         NOT NULL,
  affected    BIGINT       NOT NULL,
  reason      VARCHAR(512) NOT NULL,
  KEY idx_at (at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
