-- +goose Up
-- One authorisation of the platform per country. version grows with every change, so
-- that a change is a CAS; state is OK or REAUTHORISE.
CREATE TABLE mq_tiktok_token (
  app_key            VARCHAR(64)   NOT NULL,
  country            VARCHAR(16)   NOT NULL,
  version            BIGINT        NOT NULL,
  state              VARCHAR(16)   NOT NULL,
  access_token       VARCHAR(1024) NOT NULL,
  access_expires_at  DATETIME(3)   NOT NULL,
  refresh_token      VARCHAR(1024) NOT NULL,
  refresh_expires_at DATETIME(3)   NOT NULL,
  obtained_at        DATETIME(3)   NOT NULL,
  cipher             VARCHAR(512)  NULL,
  cipher_at          DATETIME(3)   NULL,
  last_error         VARCHAR(512)  NULL,
  updated_at         DATETIME(3)   NOT NULL,
  PRIMARY KEY (app_key, country)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
