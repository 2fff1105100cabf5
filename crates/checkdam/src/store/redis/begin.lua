-- One atomic call for any number of requests: all tiers of a request are
-- charged, or none. The store's clock is the server's, read once.
--
-- ARGV: the deadline in microseconds since 1970 (0: none), the time to use in
-- place of the clock ('' but in tests), then the requests. A request is the
-- number of its tiers and then, for each tier, fields as `take_fast` and
-- `general_tier` read them; KEYS holds the tiers' keys in the same order.
--
-- Answers: the time since 2026, then for each tier what its bucket held before;
-- the caller decides from that with the same arithmetic. After the deadline
-- nothing is done and the time alone is answered.
local EPOCH, HORIZON, STEP_BACK_HELD, STRICT_COUNTS = 1767225600000000, 536457600000000, 5000000, 11
-- Keys outlive what they owe by at least a second, in tests by far: a TTL
-- collects garbage and never carries meaning.
local TTL_MIN = ARGV[2] == '' and 1000 or 600000

local function ttl_text(length_us)
  return string.format('%.0f', math.max(math.ceil(length_us / 1000), TTL_MIN))
end

