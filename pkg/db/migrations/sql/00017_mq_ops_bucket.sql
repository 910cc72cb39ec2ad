-- +goose Up
-- n counts what happened in that minute; apart counts, in the minute of their arrival,
-- events that came too late (or lay too far ahead) to be counted where they belong.
CREATE TABLE mq_ops_bucket (
  metric  VARCHAR(32) NOT NULL,
  country VARCHAR(16) NOT NULL,
  minute  DATETIME    NOT NULL,
  n       BIGINT      NOT NULL DEFAULT 0,
  apart   BIGINT      NOT NULL DEFAULT 0,
  PRIMARY KEY (metric, country, minute),
  KEY idx_minute (minute)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
