-- The twin of sliding_log.rs: a list of numbers. First the sum of all costs that
-- have left, and by how much later than the clock the times are; then of every
-- entry, oldest first, its time and the sum of all costs up to it. By the sums an
-- entry is found without walking the log: no command here depends on its length.
local function log_entry(key, at)
  local pair = redis.call('LRANGE', key, 2 + 2 * at, 3 + 2 * at)
  return tonumber(pair[1]), tonumber(pair[2])
end

-- The first entry from `low` on for which `holds(time, sum)`, as it does for all
-- after it; the end if there is none. Near entries are found soonest.
local function log_first(key, low, holds)
  local high, step = low, 1
  local function is_beyond(at)
    local time, sum = log_entry(key, at)
    return not time or holds(time, sum)
  end
  while not is_beyond(high) do
    low, high, step = high + 1, high + step, step * 2
  end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_beyond(middle) then high = middle else low = middle + 1 end
  end
  return low
end

-- Looks without changing: what is used, how many entries have left and their
-- sum, the newest time and the time inside the log.
local function log_look(quota, key, unix)
  local look = { used = 0, left = 0, base = 0, ahead = 0, time = unix }
  local head = redis.call('LRANGE', key, 0, 3)
  if not head[1] then return look end
  local newest = redis.call('LRANGE', key, -2, -1)
  look.base, look.ahead, look.total = tonumber(head[1]), tonumber(head[2]), tonumber(newest[2])
  look.newest = newest[1] - look.ahead
  if look.newest - unix > STEP_BACK_HELD then
    -- After a long step back the entries move to the new time.
    look.ahead, look.newest, look.is_moved = look.ahead + look.newest - unix, unix, true
  end
  look.time = math.max(look.newest, unix)
  local gone = look.time + look.ahead - quota.period
  if tonumber(head[3]) <= gone then
    look.left = log_first(key, 1, function(time) return time > gone end)
    local _, sum = log_entry(key, look.left - 1)
    look.base = sum
  end
  look.used = look.total - look.base
  return look
end

-- How long until `cost` fits, and until nothing is used.
local function log_waits(quota, key, look, cost, unix)
  local reset = look.used > 0 and look.newest + quota.period - unix or 0
  local short = look.used + cost - quota.limit
  if cost > quota.limit or short <= 0 then return 0, reset end
  local at = log_first(key, look.left, function(_, sum) return sum - look.base >= short end)
  return log_entry(key, at) - look.ahead + quota.period - unix, reset
end

-- Forgets what has left, and writes down a move of the times.
local function log_settle(key, look)
  if not look.newest then return end
  local ahead = string.format('%.0f', look.ahead)
  if look.used == 0 then
    redis.call('DEL', key)
    look.base, look.ahead = 0, 0
  elseif look.left > 0 then
    redis.call('LTRIM', key, 2 + 2 * look.left, -1)
    redis.call('LPUSH', key, ahead, string.format('%.0f', look.base))
    look.left = 0
  elseif look.is_moved then
    redis.call('LSET', key, 1, ahead)
  end
end

local function log_keep(quota, key)
  redis.call('PEXPIRE', key, ttl_text(quota.period + STEP_BACK_HELD))
end

-- Adds to a settled log.
local function log_push(quota, key, look, cost)
  local time, sum = string.format('%.0f', look.time + look.ahead), string.format('%.0f', look.base + look.used + cost)
  if look.used == 0 then
    redis.call('RPUSH', key, 0, 0, time, sum)
  elseif look.time == look.newest then
    redis.call('LSET', key, -1, sum)
  else
    redis.call('RPUSH', key, time, sum)
  end
  log_keep(quota, key)
end

-- Takes off the newest entries of a settled log.
local function log_refund(quota, key, look, cost)
  local total = look.total - math.min(cost, look.used)
  if total == look.base then
    redis.call('DEL', key)
    return
  end
  local at = log_first(key, 0, function(_, sum) return sum >= total end)
  redis.call('LTRIM', key, 0, 3 + 2 * at)
  redis.call('LSET', key, -1, string.format('%.0f', total))
  log_keep(quota, key)
end

-- What was charged at `since` is among the newest entries, or is left to expire.
local function log_put_back(quota, key, look, cost, since)
  log_settle(key, look)
  if look.used == 0 then return end
  local numbers = redis.call('LRANGE', key, -66, -1)
  -- Fewer are the whole list with its head; else the first tells only a sum.
  for i = #numbers - 1, #numbers < 66 and 3 or 5, -2 do
    local before = i > 3 and numbers[i - 1] or look.base
    local entry_cost = numbers[i + 1] - before
    if numbers[i] - look.ahead == since and entry_cost >= cost then
      if entry_cost == look.used and entry_cost == cost then
        redis.call('DEL', key)
        return
      end
      for later = i, #numbers - 1, 2 do
        redis.call('LSET', key, later - #numbers, string.format('%.0f', numbers[later + 1] - cost))
      end
      if entry_cost == cost then
        -- Its sum is now that of the entry before: it goes, by its place.
        redis.call('LSET', key, i - #numbers - 1, '')
        redis.call('LSET', key, i - #numbers, '')
        redis.call('LREM', key, -2, '')
      end
      log_keep(quota, key)
      return
    end
  end
end
