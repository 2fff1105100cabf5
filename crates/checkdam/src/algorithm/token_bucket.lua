-- The twin of token_bucket.rs, and of leaky_bucket.rs, whose arithmetic is the
-- same. A bucket is stored as its full_at: a plain integer when it counts in
-- microseconds, "full_at/ticks" when it counts in ticks of a microsecond's part.

-- The stored time in the quota's own ticks, rounded up; nil if there is none.
local function bucket_read(text, ticks)
  if not text then return nil end
  local at, per = string.match(text, '^(%d+)/(%d+)$')
  local full_at, was = tonumber(at or text), tonumber(per or 1)
  if was == ticks then return full_at end
  -- full_at * ticks could exceed 2^53: whole part and rest by themselves.
  local whole = math.floor(full_at / was)
  return whole * ticks + math.ceil((full_at - whole * was) * ticks / was)
end

local function bucket_write(key, full_at, quota)
  local text = string.format('%.0f', full_at)
  if quota.ticks > 1 then text = text .. '/' .. quota.ticks end
  redis.call('SET', key, text, 'PX', ttl_text(2 * (quota.capacity + quota.remembered) / quota.ticks))
end

-- The time in the quota's ticks, what is owed then, and whether that must be
-- written down even if nothing is taken.
local function bucket_at(quota, full_at, now_us)
  local now = math.min(now_us, HORIZON) * quota.ticks
  local owed, is_new = quota.owed_initially, true
  if full_at and full_at + quota.remembered > now then
    owed, is_new = math.max(full_at - now, 0), false
  end
  if owed > quota.capacity then return now, quota.capacity, true end
  return now, owed, is_new and owed > 0
end

-- Whether the take passes, and the full_at to keep (nil: as it was).
local function bucket_decide(quota, full_at, now_us, cost)
  local now, owed, is_kept = bucket_at(quota, full_at, now_us)
  if cost == 0 then return true, nil end
  local after = owed + math.min(cost, quota.limit) * quota.interval
  if after <= quota.capacity and cost <= quota.limit then return true, now + after end
  if is_kept then return false, now + owed end
  return false, nil
end

local function bucket_refund(quota, full_at, now_us, cost)
  local now = math.min(now_us, HORIZON) * quota.ticks
  if not full_at or full_at + quota.remembered <= now then return nil end
  local owed = math.min(math.max(full_at - now, 0), quota.capacity)
  return now + math.max(owed - math.min(cost, quota.limit) * quota.interval, 0)
end

-- Grants tokens to be spent within length_us: the full_at to keep (nil: as it
-- was), and how many.
local function bucket_lease(quota, full_at, now_us, ask)
  local now, owed, is_kept = bucket_at(quota, full_at, now_us)
  local floored = math.max(owed, math.min(ask.length_us * quota.ticks, quota.capacity))
  local room = math.floor((quota.capacity - floored) / quota.interval)
  local granted = room >= ask.least and math.min(ask.wanted, math.max(math.floor(room / 2), ask.least)) or 0
  if granted > 0 then return now + floored + granted * quota.interval, granted end
  if is_kept then return now + owed, 0 end
  return nil, 0
end

-- What was granted of a bucket so far, how long the longest lease that may live
-- is at most, and until when any may.
local function ledger_read(key, now_us)
  local granted, length_us, until_us = string.match(redis.call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
  if not granted then return { granted = now_us * 16, length_us = 0, until_us = 0 } end
  return { granted = tonumber(granted), length_us = tonumber(length_us), until_us = tonumber(until_us) }
end

-- Enters a grant; what was granted so far.
local function ledger_add(key, now_us, granted, length_us)
  local ledger = ledger_read(key, now_us)
  ledger.granted = ledger.granted + granted
  if now_us >= ledger.until_us then ledger.length_us, ledger.until_us = 0, 0 end
  ledger.length_us = math.max(ledger.length_us, length_us)
  ledger.until_us = math.max(ledger.until_us, now_us + length_us)
  local text = string.format('%.0f %.0f %.0f', ledger.granted, ledger.length_us, ledger.until_us)
  redis.call('SET', key, text, 'PX', ttl_text(2 * (ledger.until_us - now_us)))
  return ledger.granted
end

-- Gives back tokens of a lease that lives: the full_at to keep (nil: as it was),
-- and how many came back.
local function bucket_give_back(quota, full_at, now_us, tokens, mark, ledger)
  local now = math.min(now_us, HORIZON) * quota.ticks
  if not full_at or full_at + quota.remembered <= now or ledger.granted < mark then return nil, 0 end
  local owed, counted_on = math.min(math.max(full_at - now, 0), quota.capacity), 0
  if ledger.granted > mark then
    counted_on = math.min(ledger.granted - mark, quota.limit) * quota.interval + ledger.length_us * quota.ticks
  end
  local after = math.max(owed - math.min(tokens, quota.limit) * quota.interval, math.min(counted_on, owed), 0)
  if after == owed then return nil, 0 end
  return full_at - (owed - after), math.floor((owed - after) / quota.interval)
end
