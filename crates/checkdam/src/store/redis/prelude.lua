-- One atomic call for any number of requests: all tiers of a request are
-- charged, or none. The store's clock is the server's, read once.
--
-- ARGV: the deadline in microseconds since 1970 (in tests, minus the time to use
-- in place of the clock), the fields of the plain requests, then the word G and
-- the fields of all others. KEYS holds the tiers' keys in the same order.
--
-- Answers: the time since 2026, then for each tier what its bucket held before;
-- the caller decides from that with the same arithmetic. Where all requests are
-- plain these are doubles in one string, else a table. After the deadline nothing
-- is done and the time alone is answered.
--
-- What costs, in instructions: a call's own 10,000, a key or an argument 1,700,
-- TIME 7,700, INCRBY 4,500, PEXPIRE 5,000, SET with a TTL 10,000, a number that is
-- read from text 1,000, one that is passed to a command 3,100 (as text that
-- format('%d') made 1,900), an answer in a table 6,000, in a string 2,500, a table
-- that grows to three entries 3,500 (one that has them from the start 900), a call
-- of type() 500. FCALL in place of EVALSHA saves 2,000 of 35,000.
local EPOCH, ARGV, call = 1767225600000000, ARGV, redis.call
local clock = call('TIME')
local unix, deadline = clock[1] * 1000000 + clock[2], ARGV[1] + 0
if deadline <= 0 then unix = EPOCH - deadline elseif unix > deadline then return { unix - EPOCH } end
local now = unix - EPOCH
