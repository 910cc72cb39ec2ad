-- The consumer app's own tables, as far as the services use them. The app owns
-- and migrates them; this file is our assumption about them, for tests and the
-- demo only. ids VARCHAR(64), times in the session's zone.

CREATE TABLE push_messages (
  id          VARCHAR(64)  NOT NULL,
  user_id     VARCHAR(64)  NOT NULL,
  title       VARCHAR(255) NOT NULL,
  body        TEXT         NOT NULL,
  data_json   TEXT         NULL,
  status      VARCHAR(16)  NOT NULL DEFAULT 'PENDING' COMMENT 'PENDING SENDING SENT FAILED EXPIRED',
  due_at      DATETIME(3)  NOT NULL,
  expires_at  DATETIME(3)  NULL,
  attempt     INT          NOT NULL DEFAULT 0,
  lease_owner VARCHAR(128) NULL,
  lease_until DATETIME(3)  NULL,
  last_error  VARCHAR(512) NULL,
  sent_at     DATETIME(3)  NULL,
  created_at  DATETIME(3)  NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at  DATETIME(3)  NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_status_due (status, due_at),
  KEY idx_status_lease (status, lease_until),
  KEY idx_status_updated (status, updated_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE user_devices (
  id             VARCHAR(64)  NOT NULL,
  user_id        VARCHAR(64)  NOT NULL,
  platform       VARCHAR(16)  NOT NULL,
  push_token     VARCHAR(512) NOT NULL,
  active         TINYINT(1)   NOT NULL DEFAULT 1,
  deactivated_at DATETIME(3)  NULL,
  created_at     DATETIME(3)  NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at     DATETIME(3)  NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_user_active (user_id, active)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The expiry scan relies on idx_status_expires: it reads one status at a time in the
-- order (expires_at, id). An index on (status, expires_at) serves as well, since
-- InnoDB appends the primary key.
CREATE TABLE user_coupons (
  id         VARCHAR(64) NOT NULL,
  user_id    VARCHAR(64) NOT NULL,
  coupon_id  VARCHAR(64) NOT NULL,
  status     VARCHAR(16) NOT NULL DEFAULT 'ISSUED' COMMENT 'CLAIMABLE ISSUED ACTIVE USED EXPIRED',
  expires_at DATETIME(3) NOT NULL,
  created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_status_expires (status, expires_at, id),
  KEY idx_user (user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- id is derived from the three key columns (SHA-256, as the app derives its order
-- ids). Money is text as the platform sends it; commissions are basis points. pinned
-- and operator_note belong to people: the sync never writes them.
CREATE TABLE tiktok_partner_campaign_products (
  id                    VARCHAR(64)   NOT NULL,
  country               VARCHAR(16)   NOT NULL,
  campaign_id           VARCHAR(32)   NOT NULL,
  product_id            VARCHAR(32)   NOT NULL,
  title                 VARCHAR(512)  NOT NULL,
  main_image_url        VARCHAR(1024) NOT NULL,
  shop_name             VARCHAR(255)  NOT NULL,
  category_id           VARCHAR(32)   NOT NULL,
  category_name         VARCHAR(255)  NOT NULL,
  lowest_price          VARCHAR(32)   NOT NULL,
  highest_price         VARCHAR(32)   NOT NULL,
  currency              VARCHAR(8)    NOT NULL,
  total_commission_bp   INT           NOT NULL,
  creator_commission_bp INT           NOT NULL,
  partner_commission_bp INT           NOT NULL,
  open_commission_bp    INT           NOT NULL,
  inventory             BIGINT        NOT NULL,
  sales                 BIGINT        NOT NULL,
  review_status         VARCHAR(32)   NOT NULL,
  available             TINYINT(1)    NOT NULL,
  active                TINYINT(1)    NOT NULL DEFAULT 1 COMMENT '0: gone from the campaign',
  share_link            VARCHAR(512)  NULL,
  link_status           VARCHAR(16)   NOT NULL DEFAULT 'UNKNOWN' COMMENT 'VALID INVALID UNKNOWN',
  link_checked_at       DATETIME(3)   NULL,
  pinned                TINYINT(1)    NOT NULL DEFAULT 0,
  operator_note         VARCHAR(255)  NULL,
  created_at            DATETIME(3)   NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at            DATETIME(3)   NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  UNIQUE KEY uk_campaign_product (country, campaign_id, product_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The tables below are only read, by the figures of ops-consumer, each through the index
-- on (status, time) or (created_at) that its statement names. FAILED is final, so that
-- updated_at is the time of the failure.
CREATE TABLE wa_inbound_messages (
  id         VARCHAR(64) NOT NULL,
  user_id    VARCHAR(64) NULL,
  body       TEXT        NULL,
  status     VARCHAR(16) NOT NULL DEFAULT 'RECEIVED' COMMENT 'RECEIVED PROCESSED FAILED',
  created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_status_created (status, created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE wa_outbound_messages (
  id         VARCHAR(64) NOT NULL,
  user_id    VARCHAR(64) NULL,
  body       TEXT        NULL,
  status     VARCHAR(16) NOT NULL DEFAULT 'PENDING' COMMENT 'PENDING SENT FAILED',
  created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_status_created (status, created_at),
  KEY idx_status_updated (status, updated_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE payment_webhook_events (
  id         VARCHAR(64) NOT NULL,
  provider   VARCHAR(32) NOT NULL DEFAULT 'xendit',
  status     VARCHAR(16) NOT NULL DEFAULT 'RECEIVED' COMMENT 'RECEIVED PROCESSED FAILED',
  created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_status_created (status, created_at),
  KEY idx_status_updated (status, updated_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE commission_records (
  id           VARCHAR(64) NOT NULL,
  user_id      VARCHAR(64) NOT NULL,
  status       VARCHAR(16) NOT NULL DEFAULT 'FROZEN' COMMENT 'FROZEN RELEASED CANCELLED',
  available_at DATETIME(3) NOT NULL COMMENT 'when a frozen one is to be released',
  created_at   DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_status_available (status, available_at),
  KEY idx_created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE affiliate_orders (
  id         VARCHAR(64) NOT NULL,
  platform   VARCHAR(32) NOT NULL DEFAULT 'shopee',
  status     VARCHAR(16) NOT NULL DEFAULT 'PENDING',
  created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE risk_events (
  id         VARCHAR(64) NOT NULL,
  user_id    VARCHAR(64) NULL,
  kind       VARCHAR(32) NOT NULL DEFAULT 'other',
  created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY idx_created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
