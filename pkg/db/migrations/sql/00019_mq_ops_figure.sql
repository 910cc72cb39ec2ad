-- +goose Up
-- The figures of the last sweep. value is NULL while a figure is unknown. subject tells
-- figures of one name apart: a consumer group, an event type, a lease.
CREATE TABLE mq_ops_figure (
  name          VARCHAR(64)  NOT NULL,
  country       VARCHAR(16)  NOT NULL,
  subject       VARCHAR(128) NOT NULL,
  value         DOUBLE       NULL,
  source        VARCHAR(16)  NOT NULL,
  note          VARCHAR(512) NOT NULL,
  event_id      VARCHAR(255) NOT NULL,
  trace_id      VARCHAR(64)  NOT NULL,
  request_id    VARCHAR(64)  NOT NULL,
  unknown_since DATETIME(3)  NULL,
  measured_at   DATETIME(3)  NOT NULL,
  PRIMARY KEY (country, name, subject)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
