-- A version alone does not identify a state: a database that was restored counts through the same versions again.
-- Every change also gets a random revision, so that two states with equal revisions are the same state.

ALTER TABLE checkdam_rulebook ADD COLUMN revision TEXT NOT NULL DEFAULT '';
DROP TRIGGER checkdam_rulebook_forward;
UPDATE checkdam_rulebook SET revision = lower(hex(randomblob(16)));

CREATE TRIGGER checkdam_rulebook_forward BEFORE UPDATE OF version ON checkdam_rulebook WHEN NEW.version <= OLD.version
BEGIN SELECT RAISE(ABORT, 'the version of the rulebook only moves forward'); END;
CREATE TRIGGER checkdam_rulebook_revision AFTER UPDATE OF version ON checkdam_rulebook
BEGIN UPDATE checkdam_rulebook SET revision = lower(hex(randomblob(16))); END;
