local clock = redis.call('TIME')
local unix = clock[1] * 1000000 + clock[2]
if ARGV[2] ~= '' then unix = ARGV[2] + EPOCH end
local now = unix - EPOCH
local deadline = tonumber(ARGV[1])
if deadline > 0 and unix > deadline then return { now } end

local windows = { nil, fixed_window, sliding_window, sliding_window_strict }
local answers, key_at, arg_at = { now }, 0, 3

-- A token bucket that counts in microseconds and is charged: the value is
-- charged at once, and put right afterwards where that was too early.
-- Fields: T (or R: set the TTL anew), group, charge, capacity.
local function fast_tier(at)
  return {
    key = KEYS[key_at], fast = true, renew = ARGV[at] == 'R', group = ARGV[at + 1],
    charge = ARGV[at + 2], capacity = tonumber(ARGV[at + 3]),
  }
end

-- Writes a fast bucket whose full_at is known.
local function fast_set(tier, full_at)
  redis.call('SET', tier.key, string.format('%.0f', full_at), 'PX', ttl_text(2 * tier.capacity))
end

-- The quota of a fast tier for the plain functions: its charge is one token.
local function fast_quota(tier)
  return { ticks = 1, interval = tier.charge + 0, capacity = tier.capacity, limit = 1, owed_initially = 0, remembered = 0 }
end

-- Charges a fast tier. Answers whether it passed; keeps what undoes it.
local function fast_take(tier)
  local full_at = redis.pcall('INCRBY', tier.key, tier.charge)
  if type(full_at) == 'table' then
    -- Written by a quota with other ticks.
    local text = redis.call('GET', tier.key)
    if not text then error(full_at) end
    local quota, before = fast_quota(tier), bucket_read(text, 1)
    local passed, kept = bucket_decide(quota, before, now, 1)
    tier.owed = math.max(math.min(before - now, tier.capacity), 0)
    if kept then fast_set(tier, kept) end
    tier.undo = text
    return passed
  end
  local before = full_at - tier.charge
  if before <= now then
    fast_set(tier, now + tier.charge)
    tier.owed, tier.restarted = 0, before
    return true
  end
  tier.owed = before - now
  if full_at - now <= tier.capacity then
    -- The key outlives what it owes if its TTL, twice the capacity, is set
    -- anew whenever full_at passes a multiple of the capacity.
    if tier.renew or math.floor(full_at / tier.capacity) > math.floor(before / tier.capacity) then
      redis.call('PEXPIRE', tier.key, ttl_text(2 * tier.capacity), 'GT')
    end
    return true
  end
  if tier.owed > tier.capacity then
    fast_set(tier, now + tier.capacity)
    tier.owed = tier.capacity
  else
    redis.call('DECRBY', tier.key, tier.charge)
  end
  return false
end

local function fast_undo(tier)
  if tier.restarted == 0 then
    redis.call('DEL', tier.key)
  elseif tier.restarted then
    -- The old time matters to a clock that steps back.
    fast_set(tier, tier.restarted)
  elseif tier.undo then
    redis.call('SET', tier.key, tier.undo, 'PX', ttl_text(2 * tier.capacity))
  else
    redis.call('DECRBY', tier.key, tier.charge)
  end
end

-- Looks at a fast tier of a request that is denied already.
local function fast_look(tier)
  local before = bucket_read(redis.call('GET', tier.key), 1)
  tier.owed = before and math.max(before - now, 0) or 0
  if tier.owed > tier.capacity then
    fast_set(tier, now + tier.capacity)
    tier.owed = tier.capacity
  end
end

-- Any other tier. Fields: G, group, operation (1 take, 2 peek, 3 refund,
-- 4 reset, 5 put back), kind (1 bucket, 2 to 4 windows, 5 log), cost, limit,
-- five numbers; and to put back, the time of the take.
local function general_tier(at)
  local quota = { limit = tonumber(ARGV[at + 5]) }
  local tier = {
    key = KEYS[key_at], group = ARGV[at + 1], operation = tonumber(ARGV[at + 2]), kind = tonumber(ARGV[at + 3]),
    cost = tonumber(ARGV[at + 4]), quota = quota,
  }
  if tier.operation == 5 then tier.since = tonumber(ARGV[at + 11]) end
  if tier.kind == 1 then
    quota.ticks, quota.interval, quota.capacity = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
    quota.owed_initially, quota.remembered = tonumber(ARGV[at + 9]), tonumber(ARGV[at + 10])
  else
    quota.period, quota.align = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
    quota.interval, quota.capacity = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
  end
  return tier
end

-- Decides a general tier without writing: passes, and what to keep.
local function general_decide(tier)
  local quota = tier.quota
  if tier.kind == 5 then
    local look = log_look(quota, tier.key, unix)
    local wait, reset = log_waits(quota, tier.key, look, tier.cost, unix)
    tier.look = look
    tier.answer = string.format('%.0f %.0f %.0f', look.used, wait, reset)
    tier.passed = tier.cost == 0 or (tier.cost <= quota.limit and look.used + tier.cost <= quota.limit)
    return
  end
  local text = redis.call('GET', tier.key)
  if tier.kind == 1 then
    local full_at = bucket_read(text, quota.ticks)
    tier.state = full_at
    tier.answer = full_at and string.format('%.0f', full_at) or ''
    tier.passed, tier.kept = bucket_decide(quota, full_at, now, tier.cost)
    return
  end
  local window = windows[tier.kind]
  tier.text = text
  tier.answer = text or ''
  tier.state = window.roll(quota, text, unix)
  tier.passed = tier.cost == 0 or (tier.cost <= quota.limit and window.fits(quota, tier.state, tier.cost))
end

-- Writes what a general take keeps: the charge, or what a denial learned of time.
local function general_write(tier, charged)
  local quota = tier.quota
  if tier.operation ~= 1 or tier.cost == 0 then return end
  if tier.kind == 1 then
    if tier.kept and (charged or not tier.passed) then bucket_write(tier.key, tier.kept, quota) end
  elseif tier.kind == 5 then
    if charged or not tier.passed then log_settle(tier.key, tier.look) end
    if charged then log_push(quota, tier.key, tier.look, tier.cost) end
  elseif charged or (tier.text and not tier.passed) then
    local window = windows[tier.kind]
    if charged then window.charge(tier.state, tier.cost) end
    set_numbers(tier.key, tier.state, window.gone_at(quota, tier.state), unix)
  end
end

-- Gives back what a take charged at `since`, and only that: what has come back
-- by itself since then may be in use again.
local function put_back(tier)
  local quota, since = tier.quota, tier.since + EPOCH
  if tier.kind == 1 then
    -- Of the charge, the time that has passed is paid already.
    local charge = tier.cost * quota.interval - math.max(unix - since, 0) * quota.ticks
    if charge <= 0 then return end
    quota.interval, quota.limit = charge, 1
    local kept = bucket_refund(quota, tier.state, now, 1)
    if kept then bucket_write(tier.key, kept, quota) end
  elseif tier.kind == 5 then
    log_put_back(quota, tier.key, tier.look, tier.cost, since)
  elseif tier.text then
    local window = windows[tier.kind]
    window.put_back(quota, tier.state, tier.cost, since)
    set_numbers(tier.key, tier.state, window.gone_at(quota, tier.state), unix)
  end
end

-- Refund and reset: one tier by itself. Answers with the state after.
local function general_give(tier)
  local quota = tier.quota
  if tier.operation == 4 then
    redis.call('DEL', tier.key)
    tier.answer = tier.kind == 5 and '0 0 0' or ''
    return
  end
  general_decide(tier)
  if tier.operation == 5 then
    put_back(tier)
  elseif tier.kind == 1 then
    local kept = bucket_refund(quota, tier.state, now, tier.cost)
    if kept then
      bucket_write(tier.key, kept, quota)
      tier.answer = string.format('%.0f', kept)
    end
  elseif tier.kind == 5 then
    log_settle(tier.key, tier.look)
    if tier.look.used == 0 then return end
    log_refund(quota, tier.key, tier.look, tier.cost)
    local look = log_look(quota, tier.key, unix)
    local _, reset = log_waits(quota, tier.key, look, 0, unix)
    tier.answer = string.format('%.0f 0 %.0f', look.used, reset)
  elseif tier.text then
    local window = windows[tier.kind]
    window.refund(tier.state, tier.cost)
    set_numbers(tier.key, tier.state, window.gone_at(quota, tier.state), unix)
    tier.answer = redis.call('GET', tier.key)
  end
end

-- Charges the tiers of one group, all or none; whether they passed.
local function take_group(tiers, group)
  local taken, passed = {}, true
  for _, tier in ipairs(tiers) do
    if tier.group == group and not tier.fast and not tier.passed then passed = false end
  end
  for _, tier in ipairs(tiers) do
    if tier.group == group and tier.fast then
      if not passed then
        fast_look(tier)
      elseif fast_take(tier) then
        taken[#taken + 1] = tier
      else
        passed = false
      end
    end
  end
  if not passed then
    for _, tier in ipairs(taken) do fast_undo(tier) end
  end
  for _, tier in ipairs(tiers) do
    if tier.group == group and not tier.fast then general_write(tier, passed) end
  end
  return passed
end

local function take(tiers)
  local groups, seen = {}, { ['0'] = true }
  for _, tier in ipairs(tiers) do
    if not tier.fast then general_decide(tier) end
    if not seen[tier.group] then
      seen[tier.group] = true
      groups[#groups + 1] = tier.group
    end
  end
  local passed = take_group(tiers, '0')
  for _, group in ipairs(groups) do
    if passed then
      take_group(tiers, group)
    else
      for _, tier in ipairs(tiers) do
        if tier.group == group and tier.fast then fast_look(tier) end
        if tier.group == group and not tier.fast then general_write(tier, false) end
      end
    end
  end
end

while arg_at <= #ARGV do
  local count, tiers = tonumber(ARGV[arg_at]), {}
  arg_at = arg_at + 1
  for i = 1, count do
    key_at = key_at + 1
    if ARGV[arg_at] == 'G' then
      tiers[i] = general_tier(arg_at)
      arg_at = arg_at + (tiers[i].operation == 5 and 12 or 11)
    else
      tiers[i] = fast_tier(arg_at)
      arg_at = arg_at + 4
    end
  end
  local operation = tiers[1] and tiers[1].operation or 1
  if count == 1 and tiers[1].fast then
    fast_take(tiers[1])
  elseif operation == 1 then
    take(tiers)
  else
    for _, tier in ipairs(tiers) do
      if operation == 2 then general_decide(tier) else general_give(tier) end
    end
  end
  for i = 1, count do
    local tier = tiers[i]
    answers[#answers + 1] = tier.fast and tier.owed or tier.answer
  end
end
return answers
