-- The twin of sliding_log.rs: a list whose first element is the sum of the
-- costs, and then "time cost", oldest first.
local function log_entry(text)
  local time, cost = string.match(text, '^(%d+) (%d+)$')
  return tonumber(time), tonumber(cost)
end

-- Looks without changing: what is used, how many entries have left, by how much
-- a long step back moves the entries, the time inside the log, and the newest.
local function log_look(quota, key, unix)
  local look = { used = 0, left = 0, back = 0, time = unix }
  local sum = redis.call('LINDEX', key, 0)
  if not sum then return look end
  look.used = tonumber(sum)
  look.newest = log_entry(redis.call('LINDEX', key, -1))
  if look.newest - unix > STEP_BACK_HELD then
    look.back = look.newest - unix
  else
    look.time = math.max(look.newest, unix)
  end
  local at = 1
  while true do
    local chunk = redis.call('LRANGE', key, at, at + 31)
    for _, text in ipairs(chunk) do
      local time, cost = log_entry(text)
      if time - look.back + quota.period > look.time then return look end
      look.left = look.left + 1
      look.used = look.used - cost
    end
    if #chunk < 32 then return look end
    at = at + 32
  end
end

-- How long until `cost` fits, and until nothing is used.
local function log_waits(quota, key, look, cost, unix)
  local reset = look.used > 0 and look.newest - look.back + quota.period - unix or 0
  local used, at = look.used, 1 + look.left
  if cost == 0 or cost > quota.limit or used + cost <= quota.limit then return 0, reset end
  while true do
    local chunk = redis.call('LRANGE', key, at, at + 31)
    if #chunk == 0 then return 0, reset end
    for _, text in ipairs(chunk) do
      local time, entry_cost = log_entry(text)
      used = used - entry_cost
      if used + cost <= quota.limit then return time - look.back + quota.period - unix, reset end
    end
    at = at + 32
  end
end

-- Forgets what has left and moves the rest after a long step back.
local function log_settle(key, look)
  if not look.newest then return end
  if look.left > 0 then
    redis.call('LTRIM', key, 1 + look.left, -1)
    if look.used > 0 then redis.call('LPUSH', key, string.format('%.0f', look.used)) end
  end
  if look.back > 0 then
    local entries = redis.call('LRANGE', key, 1, -1)
    for i, text in ipairs(entries) do
      local time, cost = log_entry(text)
      redis.call('LSET', key, i, string.format('%.0f %.0f', time - look.back, cost))
    end
    look.newest = look.newest - look.back
    look.back = 0
  end
end

local function log_keep(quota, key)
  redis.call('PEXPIRE', key, ttl_text(quota.period + STEP_BACK_HELD))
end

local function log_push(quota, key, look, cost)
  if look.used > 0 then
    local time, last = log_entry(redis.call('LINDEX', key, -1))
    redis.call('LSET', key, 0, string.format('%.0f', look.used + cost))
    if time == look.time then
      redis.call('LSET', key, -1, string.format('%.0f %.0f', time, last + cost))
    else
      redis.call('RPUSH', key, string.format('%.0f %.0f', look.time, cost))
    end
  else
    redis.call('RPUSH', key, string.format('%.0f', cost), string.format('%.0f %.0f', look.time, cost))
  end
  log_keep(quota, key)
end

local function log_refund(quota, key, look, cost)
  local rest = math.min(cost, look.used)
  if rest == look.used then
    redis.call('DEL', key)
    return
  end
  redis.call('LSET', key, 0, string.format('%.0f', look.used - rest))
  while rest > 0 do
    local time, last = log_entry(redis.call('LINDEX', key, -1))
    if last <= rest then
      redis.call('RPOP', key)
      rest = rest - last
    else
      redis.call('LSET', key, -1, string.format('%.0f %.0f', time, last - rest))
      rest = 0
    end
  end
  log_keep(quota, key)
end

-- What was charged at `since` is among the newest entries, or is left to expire.
local function log_put_back(quota, key, look, cost, since)
  log_settle(key, look)
  if look.used == 0 then return end
  local entries = redis.call('LRANGE', key, -32, -1)
  for i = #entries, 1, -1 do
    local time, entry_cost = log_entry(entries[i])
    if time == since and entry_cost >= cost then
      if entry_cost == look.used and entry_cost == cost then
        redis.call('DEL', key)
        return
      end
      redis.call('LSET', key, 0, string.format('%.0f', look.used - cost))
      if entry_cost == cost then
        -- Entries are not unique by their text: this one, by its place.
        redis.call('LSET', key, i - #entries - 1, '')
        redis.call('LREM', key, -1, '')
      else
        redis.call('LSET', key, i - #entries - 1, string.format('%.0f %.0f', time, entry_cost - cost))
      end
      log_keep(quota, key)
      return
    end
  end
end
