-- Requests that were denied. Rows outlive the rules that they name.

CREATE TABLE rate_limit_violation (
    violation_id INTEGER PRIMARY KEY AUTOINCREMENT,
    bucket_key TEXT NOT NULL,
    user_id TEXT,
    ip_address TEXT,
    endpoint TEXT,
    requested_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    tokens_at_time REAL NOT NULL DEFAULT 0,
    rule_id INTEGER,
    rule_name TEXT,
    subject TEXT,
    method TEXT,
    tenant TEXT,
    cost INTEGER NOT NULL DEFAULT 1,
    limit_text TEXT,
    retry_after_ms INTEGER,
    node TEXT,
    decided_by TEXT
);

CREATE INDEX rate_limit_violation_user ON rate_limit_violation (user_id, requested_at DESC, violation_id DESC);
CREATE INDEX rate_limit_violation_ip ON rate_limit_violation (ip_address, requested_at DESC, violation_id DESC);
CREATE INDEX rate_limit_violation_rule ON rate_limit_violation (rule_name, requested_at DESC, violation_id DESC);
CREATE INDEX rate_limit_violation_time ON rate_limit_violation (requested_at DESC, violation_id DESC);
