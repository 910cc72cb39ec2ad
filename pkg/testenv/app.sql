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
  KEY idx_status_lease (status, lease_until)
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
