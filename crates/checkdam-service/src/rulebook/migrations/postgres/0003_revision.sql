-- A version alone does not identify a state: a database that was restored counts through the same versions again.
-- Every change also gets a random revision, so that two states with equal revisions are the same state.

ALTER TABLE checkdam_rulebook ADD COLUMN revision UUID NOT NULL DEFAULT gen_random_uuid();

CREATE FUNCTION checkdam_new_revision() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := gen_random_uuid();
    RETURN NEW;
END
$$;

CREATE TRIGGER checkdam_rulebook_revision BEFORE UPDATE ON checkdam_rulebook
    FOR EACH ROW EXECUTE FUNCTION checkdam_new_revision();
