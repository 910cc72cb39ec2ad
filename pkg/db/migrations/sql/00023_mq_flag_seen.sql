-- +goose Up
-- Which version of a flag each process goes by, and since when; a row goes with its process.
CREATE TABLE mq_flag_seen (
  flag     VARCHAR(64)  NOT NULL,
  country  VARCHAR(16)  NOT NULL,
  instance VARCHAR(128) NOT NULL,
  role     VARCHAR(16)  NOT NULL,
  version  BIGINT       NOT NULL,
  goes_by  VARCHAR(40)  NOT NULL,
  since    DATETIME(3)  NOT NULL,
  seen_at  DATETIME(3)  NOT NULL,
  PRIMARY KEY (flag, country, instance)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
