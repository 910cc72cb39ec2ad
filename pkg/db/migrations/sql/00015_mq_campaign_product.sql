-- +goose Up
-- What the sync remembers of a product and the app does not need: the round that saw
-- it last, how many whole rounds missed it, the round that checked its link last, and
-- how many rounds in a row found the link invalid.
CREATE TABLE mq_campaign_product (
  country       VARCHAR(16) NOT NULL,
  campaign_id   VARCHAR(32) NOT NULL,
  product_id    VARCHAR(32) NOT NULL,
  seen_round    VARCHAR(32) NOT NULL,
  missed        INT         NOT NULL DEFAULT 0,
  link_round    VARCHAR(32) NOT NULL DEFAULT '',
  link_invalids INT         NOT NULL DEFAULT 0,
  link_valid_at DATETIME(3) NULL,
  PRIMARY KEY (country, campaign_id, product_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
