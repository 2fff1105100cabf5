local windows = { nil, fixed_window, sliding_window, sliding_window_strict }

-- A tier of a plain request: its charge is one token.
local function plain_tier(at)
  local capacity = math.floor(ARGV[at + 1] / 2)
  local quota = { ticks = 1, interval = tonumber(ARGV[at]), capacity = capacity, limit = 1, owed_initially = 0, remembered = 0 }
  return { key = KEYS[key_at], group = '0', operation = 1, kind = 1, cost = 1, quota = quota }
end

-- Any other tier. Fields: group, operation (1 take, 2 peek, 3 refund,
-- 4 reset, 5 put back, 6 lease, 7 give back of a lease, 8 and 9 refund and put
-- back of a bucket that may be leased, 10 charge what is left), kind (1 bucket, 2 to 4 windows, 5 log,
-- 6 take of a bucket that may owe less than its capacity: how much follows last,
-- 7 fixed window of the calendar: the numbers are the starts of four of them),
-- cost, limit, five numbers; to put back, the time of the take; for a lease, of
-- which the cost is what is wanted, the least that is of use and how long it is
-- held; to give back, what the ledger said after the lease. From 6 to 9 there is a
-- second key: the ledger.
local function general_tier(at)
  local quota = { limit = tonumber(ARGV[at + 4]) }
  local tier = {
    key = KEYS[key_at], group = ARGV[at], operation = tonumber(ARGV[at + 1]), kind = tonumber(ARGV[at + 2]),
    cost = tonumber(ARGV[at + 3]), quota = quota,
  }
  if tier.operation == 5 or tier.operation == 9 then tier.since = tonumber(ARGV[at + 10]) end
  if tier.operation == 6 then
    tier.ask = { wanted = tier.cost, least = tonumber(ARGV[at + 10]), length_us = tonumber(ARGV[at + 11]) }
  end
  if tier.operation == 7 then tier.mark = tonumber(ARGV[at + 10]) end
  if tier.operation >= 6 and tier.operation <= 9 then
    key_at = key_at + 1
    tier.ledger = KEYS[key_at]
  end
  if tier.kind == 6 then
    tier.kind, quota.ceiling, tier.more = 1, tonumber(ARGV[at + 10]), 1
  end
  if tier.kind == 1 then
    quota.ticks, quota.interval, quota.capacity = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
    quota.owed_initially, quota.remembered = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
  elseif tier.kind == 7 then
    tier.kind = 2
    quota.starts = { tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8]) }
  else
    quota.period, quota.interval, quota.capacity = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
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
    local full_at = text and tonumber(text)
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
    if tier.kept and (charged or not tier.passed) then bucket_write(tier.key, tier.kept, quota, now * quota.ticks) end
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
    if kept then bucket_write(tier.key, kept, quota, now * quota.ticks) end
  elseif tier.kind == 5 then
    log_put_back(quota, tier.key, tier.look, tier.cost, since)
  elseif tier.text then
    local window = windows[tier.kind]
    window.put_back(quota, tier.state, tier.cost, since)
    set_numbers(tier.key, tier.state, window.gone_at(quota, tier.state), unix)
  end
end

-- Charges what is left, if that is less than the cost; the state after it.
local function charge_left(tier)
  local quota = tier.quota
  if tier.cost == 0 then return end
  if tier.kind == 1 then
    local kept = bucket_charge(quota, tier.state, now, tier.cost)
    bucket_write(tier.key, kept, quota, now * quota.ticks)
    tier.answer = string.format('%.0f', kept)
  elseif tier.kind == 5 then
    log_settle(tier.key, tier.look)
    local cost = math.min(tier.cost, math.max(quota.limit - tier.look.used, 0))
    if cost > 0 then log_push(quota, tier.key, tier.look, cost) end
    local look = log_look(quota, tier.key, unix)
    local _, reset = log_waits(quota, tier.key, look, 0, unix)
    tier.answer = string.format('%.0f 0 %.0f', look.used, reset)
  else
    local window = windows[tier.kind]
    window.charge(tier.state, math.min(tier.cost, window.left(quota, tier.state)))
    set_numbers(tier.key, tier.state, window.gone_at(quota, tier.state), unix)
    tier.answer = redis.call('GET', tier.key)
  end
end

-- Refund, charge and reset: one tier by itself. Answers with the state after; a lease
-- with what the ledger says and the state before, its return with what came back.
local function general_give(tier)
  local quota = tier.quota
  if tier.operation == 4 then
    redis.call('DEL', tier.key)
    tier.answer = tier.kind == 5 and '0 0 0' or ''
    return
  end
  general_decide(tier)
  if tier.operation >= 8 and tier.ledger and ledger_read(tier.ledger, now).until_us > now then
    -- Less must not be owed while leases may live: nothing comes back.
    return
  end
  if tier.operation == 5 or tier.operation == 9 then
    put_back(tier)
  elseif tier.operation == 10 then
    charge_left(tier)
  elseif tier.operation == 6 then
    local kept, granted = bucket_lease(quota, tier.state, now, tier.ask)
    if kept then bucket_write(tier.key, kept, quota, now * quota.ticks) end
    local mark = granted > 0 and ledger_add(tier.ledger, now, granted, tier.ask.length_us) or 0
    tier.answer = string.format('%.0f ', mark) .. tier.answer
  elseif tier.operation == 7 then
    local ledger = ledger_read(tier.ledger, now)
    local kept, back = bucket_give_back(quota, tier.state, now, tier.cost, tier.mark, ledger)
    if kept then bucket_write(tier.key, kept, quota, now * quota.ticks) end
    tier.answer = string.format('%.0f', back)
  elseif tier.kind == 1 then
    local kept = bucket_refund(quota, tier.state, now, tier.cost)
    if kept then
      bucket_write(tier.key, kept, quota, now * quota.ticks)
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
  local passed = true
  for _, tier in ipairs(tiers) do
    if tier.group == group and not tier.passed then passed = false end
  end
  for _, tier in ipairs(tiers) do
    if tier.group == group then general_write(tier, passed) end
  end
  return passed
end

local function take(tiers)
  local groups, seen = {}, { ['0'] = true }
  for _, tier in ipairs(tiers) do
    general_decide(tier)
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
        if tier.group == group then general_write(tier, false) end
      end
    end
  end
end

local function plain_request()
  if run_left == 0 then
    run_left, run_at = tonumber(ARGV[arg_at]), arg_at + 1
  end
  local tiers, at = {}, run_at
  repeat
    key_at = key_at + 1
    tiers[#tiers + 1] = plain_tier(at)
    at = at + 2
  until ARGV[at - 1] % 2 == 0
  run_left = run_left - 1
  arg_at = math.max(arg_at, at)
  return tiers
end

-- The number of its tiers stands before their fields.
local FIELDS = { 10, 10, 10, 10, 11, 12, 11, 10, 11, 10 }
local function general_request()
  local count, tiers = tonumber(ARGV[arg_at]), {}
  arg_at = arg_at + 1
  for i = 1, count do
    key_at = key_at + 1
    tiers[i] = general_tier(arg_at)
    arg_at = arg_at + FIELDS[tiers[i].operation] + (tiers[i].more or 0)
  end
  return tiers
end

-- Whether a request names windows of the calendar in none of which the server's time is, because
-- the clocks of node and server are too far apart. A reset needs no window.
local function is_outside_windows(tiers)
  for _, tier in ipairs(tiers) do
    if tier.operation ~= 4 and not knows_windows(tier.quota, unix) then return true end
  end
  return false
end

local is_plain = true
-- Up to here every key had its answer; some have two keys from here on.
local answer_at = key_at + 1
while key_at < keys_end do
  if run_left == 0 and ARGV[arg_at] == 'G' then
    is_plain = false
    arg_at = arg_at + 1
  end
  local tiers = is_plain and plain_request() or general_request()
  local operation = tiers[1].operation
  if is_outside_windows(tiers) then
    for _, tier in ipairs(tiers) do tier.answer = 'outside' end
  elseif operation == 1 then
    take(tiers)
  else
    for _, tier in ipairs(tiers) do
      if operation == 2 then general_decide(tier) else general_give(tier) end
    end
  end
  for _, tier in ipairs(tiers) do
    answer_at = answer_at + 1
    answers[answer_at] = tier.answer
  end
end
return answers
