-- +goose Up
-- What whoever watches needs beside the figures: whose backlog it is, how old the oldest
-- event in the hands of a handler is, and why a process does less than it could.
ALTER TABLE mq_task_health
  ADD COLUMN consumer_group VARCHAR(64)  NULL,
  ADD COLUMN in_hand_age_ms BIGINT       NULL,
  ADD COLUMN note           VARCHAR(255) NULL;
