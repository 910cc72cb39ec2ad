-- +goose Up
CREATE TABLE mq_lease (
  name         VARCHAR(64)     NOT NULL PRIMARY KEY,
  owner        VARCHAR(128)    NOT NULL,
  fence        BIGINT UNSIGNED NOT NULL,
  locked_at    DATETIME(3)     NOT NULL,
  locked_until DATETIME(3)     NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
