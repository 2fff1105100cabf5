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
-- What costs, in instructions: a call's own 18,000, TIME 6,500, INCRBY and GET
-- 4,500, SET with a TTL 13,000, a number that is read from text 900, one that is
-- written as text 3,200, an answer in a table 5,000, a key or an argument 1,200.
local EPOCH, ARGV, call = 1767225600000000, ARGV, redis.call
local clock = call('TIME')
local unix, deadline = clock[1] * 1000000 + clock[2], ARGV[1] + 0
if deadline <= 0 then unix = EPOCH - deadline elseif unix > deadline then return { unix - EPOCH } end
local now = unix - EPOCH
