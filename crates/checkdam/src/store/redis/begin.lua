-- One atomic call for any number of requests: all tiers of a request are
-- charged, or none. The store's clock is the server's, read once.
--
-- ARGV: the deadline in microseconds since 1970 (in tests, minus the time to use
-- in place of the clock), the fields of the plain requests, then the word G and
-- the fields of all others. KEYS holds the tiers' keys in the same order.
--
-- Answers: the time since 2026, then for each tier what its bucket held before;
-- the caller decides from that with the same arithmetic. After the deadline
-- nothing is done and the time alone is answered.
--
-- What costs: a call's own 19,000 instructions, TIME 7,000, INCRBY and GET
-- 4,000, SET with a TTL 13,000, a number as a command's argument 2,000 more than
-- a string, an answer in a table 5,000.
local EPOCH = 1767225600000000
local call = redis.call
local clock = call('TIME')
local unix, deadline = clock[1] * 1000000 + clock[2], ARGV[1] + 0
local is_test = deadline <= 0
if is_test then unix = EPOCH - deadline elseif unix > deadline then return { unix - EPOCH } end
local now = unix - EPOCH
-- Keys outlive what they owe by at least a second, in tests by far: a TTL
-- collects garbage and never carries meaning.
local TTL_MIN = is_test and 600000 or 1000
local answers, key_at, arg_at, keys_end = nil, 0, 2, #KEYS
