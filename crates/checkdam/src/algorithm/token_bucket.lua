-- The twin of token_bucket.rs, and of leaky_bucket.rs, whose arithmetic is the
-- same. A bucket is stored as its full_at, in the ticks of its quota. Recorded debt
-- has a second number after it, the most that may be owed: so the fast path, which
-- reads one number, cannot take it for a clock that has stepped back.

-- The state of a text: full_at, and the most that may be owed if that is debt.
local function bucket_read(text)
  local full_at = tonumber(text)
  if full_at then return full_at, nil end
  local marked, most = string.match(text, '^(%d+) (%d+)$')
  return tonumber(marked), tonumber(most)
end

-- The TTL outlives what is owed, also while a step back of the clock is waited out, and
-- for how long a full bucket is remembered.
local function bucket_write(key, full_at, quota, now)
  local held = STEP_BACK_HELD * quota.ticks
  local ttl = math.max(2 * (quota.capacity + quota.remembered), full_at - now + quota.remembered + held)
  local text = string.format('%.0f', full_at)
  if quota.most and full_at - now > quota.capacity then text = text .. string.format(' %.0f', quota.most) end
  redis.call('SET', key, text, 'PX', ttl_text(ttl / quota.ticks))
  return text
end

-- The time in the quota's ticks, what is owed then, whether that must be written
-- down even if nothing is taken, and whether the bucket is new. In debt, quota.most
-- is the most that it may owe.
local function bucket_at(quota, full_at, now_us)
  local now = math.min(now_us, HORIZON) * quota.ticks
  if not full_at or full_at + quota.remembered <= now then
    quota.most = nil
    return now, quota.owed_initially, quota.owed_initially > 0, true
  end
  local owed = math.max(full_at - now, 0)
  local most = quota.most or quota.capacity
  if owed > most + STEP_BACK_HELD * quota.ticks then return now, most, true, false end
  return now, owed, false, false
end

-- Whether the take passes, and the full_at to keep (nil: as it was).
local function bucket_decide(quota, full_at, now_us, cost)
  local now, owed, is_kept = bucket_at(quota, full_at, now_us)
  if cost == 0 and owed <= quota.capacity then return true, nil end
  local after = owed + math.min(cost, quota.limit) * quota.interval
  if after <= (quota.ceiling or quota.capacity) and cost <= quota.limit then return true, now + after end
  if is_kept then return false, now + owed end
  return false, nil
end

local function bucket_refund(quota, full_at, now_us, cost)
  local now, owed, _, is_new = bucket_at(quota, full_at, now_us)
  if is_new then return nil end
  return now + math.max(owed - cost * quota.interval, 0)
end

-- Charges the cost, whatever is left: the full_at to keep (nil: as it was), and what
-- was not charged because of the bound of debts.
local function bucket_record(quota, full_at, now_us, cost)
  local now, owed, is_kept = bucket_at(quota, full_at, now_us)
  local charge = math.min(cost * quota.interval, math.max(quota.recorded_max - owed, 0))
  local cut_off = math.max(cost - math.floor(charge / quota.interval), 0)
  if charge > 0 then
    quota.most = quota.recorded_max
    return now + owed + charge, cut_off
  end
  if is_kept then return now + owed, cut_off end
  return nil, cut_off
end

-- Charges what is left, if that is less than the cost: the full_at to keep.
local function bucket_charge(quota, full_at, now_us, cost)
  local now, owed = bucket_at(quota, full_at, now_us)
  local charged = owed + math.min(cost, quota.limit) * quota.interval
  return now + math.min(charged, math.max(owed, quota.capacity))
end

-- Grants tokens to be spent within length_us: the full_at to keep (nil: as it
-- was), and how many.
local function bucket_lease(quota, full_at, now_us, ask)
  local now, owed, is_kept = bucket_at(quota, full_at, now_us)
  local floored = math.max(owed, math.min(ask.length_us * quota.ticks, quota.capacity))
  local room = math.floor(math.max(quota.capacity - floored, 0) / quota.interval)
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
  local now, owed, _, is_new = bucket_at(quota, full_at, now_us)
  if is_new or ledger.granted < mark then return nil, 0 end
  local counted_on = 0
  if ledger.granted > mark then
    counted_on = math.min(ledger.granted - mark, quota.limit) * quota.interval + ledger.length_us * quota.ticks
  end
  local after = math.max(owed - math.min(tokens, quota.limit) * quota.interval, math.min(counted_on, owed), 0)
  if after == owed then return nil, 0 end
  return now + after, math.floor((owed - after) / quota.interval)
end
