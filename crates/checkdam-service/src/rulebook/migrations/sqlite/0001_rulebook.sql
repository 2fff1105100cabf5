-- The rulebook: rules, overrides and bans, and the version that every change of them moves forward.

CREATE TABLE checkdam_rulebook (
    is_only INTEGER PRIMARY KEY DEFAULT 1 CHECK (is_only = 1),
    version INTEGER NOT NULL
);
INSERT INTO checkdam_rulebook (version) VALUES (0);

CREATE TABLE rate_limit_rule (
    rule_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    domain TEXT NOT NULL DEFAULT '',
    key_pattern TEXT NOT NULL,
    -- NULL: as the key pattern says.
    scope TEXT,
    -- What counts where limits is NULL; otherwise what the first of the limits comes to.
    rate_per_second REAL,
    burst_capacity INTEGER,
    plan TEXT,
    is_active BOOLEAN NOT NULL DEFAULT TRUE,
    description TEXT,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    -- A list such as ["10/s burst 50", "5000/h"].
    limits TEXT CHECK (limits IS NULL OR (json_valid(limits) AND json_type(limits) = 'array')),
    -- An object such as {"method": ["GET", "POST"]}; the plan has a column of its own.
    conditions TEXT CHECK (conditions IS NULL OR (json_valid(conditions) AND json_type(conditions) = 'object')),
    algorithm TEXT,
    strict BOOLEAN,
    mode TEXT NOT NULL DEFAULT 'enforce',
    on_store_failure TEXT,
    lease TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1,
    updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);

-- Two enforced rules must not concern exactly the same requests. A missing plan is a plan like any other here.
CREATE UNIQUE INDEX rate_limit_rule_same ON rate_limit_rule (
    domain, key_pattern, COALESCE(scope, ''), (plan IS NULL), COALESCE(plan, ''),
    json(COALESCE(conditions, '{}'))
) WHERE is_active AND mode = 'enforce';

CREATE TABLE rate_limit_override (
    override_id INTEGER PRIMARY KEY AUTOINCREMENT,
    rule_name TEXT NOT NULL,
    subject TEXT NOT NULL,
    -- Exactly one of these three says what the subject is allowed.
    limits TEXT CHECK (limits IS NULL OR (json_valid(limits) AND json_type(limits) = 'array')),
    scale NUMERIC,
    is_unlimited BOOLEAN NOT NULL DEFAULT FALSE,
    description TEXT,
    version INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    UNIQUE (rule_name, subject)
);

CREATE TABLE rate_limit_ban (
    ban_id INTEGER PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL UNIQUE,
    -- NULL: for ever.
    until TEXT,
    reason TEXT,
    version INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);

CREATE TRIGGER checkdam_rulebook_forward BEFORE UPDATE ON checkdam_rulebook WHEN NEW.version <= OLD.version
BEGIN SELECT RAISE(ABORT, 'the version of the rulebook only moves forward'); END;

CREATE TRIGGER rate_limit_rule_inserted AFTER INSERT ON rate_limit_rule
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_rule_updated AFTER UPDATE ON rate_limit_rule
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_rule_deleted AFTER DELETE ON rate_limit_rule
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_override_inserted AFTER INSERT ON rate_limit_override
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_override_updated AFTER UPDATE ON rate_limit_override
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_override_deleted AFTER DELETE ON rate_limit_override
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_ban_inserted AFTER INSERT ON rate_limit_ban
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_ban_updated AFTER UPDATE ON rate_limit_ban
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;
CREATE TRIGGER rate_limit_ban_deleted AFTER DELETE ON rate_limit_ban
BEGIN UPDATE checkdam_rulebook SET version = version + 1; END;

CREATE TRIGGER rate_limit_rule_named AFTER INSERT ON rate_limit_rule WHEN COALESCE(NEW.name, '') = ''
BEGIN UPDATE rate_limit_rule SET name = 'rule-' || NEW.rule_id, version = 1 WHERE rule_id = NEW.rule_id; END;

-- Naming a new row is not a change of it.
CREATE TRIGGER rate_limit_rule_version AFTER UPDATE ON rate_limit_rule
WHEN NEW.version = OLD.version AND COALESCE(OLD.name, '') <> ''
BEGIN
    UPDATE rate_limit_rule SET version = OLD.version + 1, updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
    WHERE rule_id = NEW.rule_id;
END;
CREATE TRIGGER rate_limit_override_version AFTER UPDATE ON rate_limit_override WHEN NEW.version = OLD.version
BEGIN
    UPDATE rate_limit_override SET version = OLD.version + 1, updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
    WHERE override_id = NEW.override_id;
END;
CREATE TRIGGER rate_limit_ban_version AFTER UPDATE ON rate_limit_ban WHEN NEW.version = OLD.version
BEGIN
    UPDATE rate_limit_ban SET version = OLD.version + 1, updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
    WHERE ban_id = NEW.ban_id;
END;
