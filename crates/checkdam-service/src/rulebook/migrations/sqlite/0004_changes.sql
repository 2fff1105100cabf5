-- The change log: edits of rules, overrides and bans, with who made them. Only checkdam writes it: edits by hand are
-- not in it.

CREATE TABLE rate_limit_change (
    change_id INTEGER PRIMARY KEY AUTOINCREMENT,
    changed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    actor TEXT NOT NULL,
    -- add, change, remove, import or seed.
    action TEXT NOT NULL,
    -- rule, override, ban or rulebook.
    kind TEXT NOT NULL,
    -- The rule's name, and whose override or ban it is.
    name TEXT,
    subject TEXT,
    -- The rulebook's version after the edit.
    rulebook_version INTEGER NOT NULL,
    -- The item, as the admin API answers it; of an import what it did.
    item_before TEXT CHECK (item_before IS NULL OR json_valid(item_before)),
    item_after TEXT CHECK (item_after IS NULL OR json_valid(item_after))
);
