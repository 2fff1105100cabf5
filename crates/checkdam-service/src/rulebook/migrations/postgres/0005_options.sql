-- Fields of a rule that have no column of their own, as in a rule file: an object.

ALTER TABLE rate_limit_rule ADD COLUMN options JSON CHECK (json_typeof(options) = 'object');
