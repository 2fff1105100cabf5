
-- Plain requests: takes of enforced buckets that count in microseconds. Most
-- requests are, so they are answered before anything else is even defined.
--
-- Two fields a tier: the charge, and four times the capacity, plus 1 if the
-- next tier belongs to the same request, 2 if the TTL must be set anew.
-- Requests with the same fields are a run: their number, and the fields once.
-- The value is charged at once, and put right afterwards where that was too
-- early. A tier's answer is the time that its bucket owed. A key outlives what
-- it owes if its TTL, twice the capacity, is set anew whenever full_at passes a
-- multiple of the capacity.

-- One tier alone has no number before its two fields, and is answered with one
-- number: the time owed, times 2^21, and the time itself modulo 2^21.
if #ARGV == 3 then
  local key, charge_text = KEYS[1], ARGV[2]
  local charge, capacity = charge_text + 0, ARGV[3] / 4
  local full_at = redis.pcall('INCRBY', key, charge_text)
  if type(full_at) ~= 'table' then
    local before = full_at - charge
    local owed = before - now
    local is_anew = owed <= 0
    if is_anew then
      owed = 0
      full_at = call('INCRBY', key, now - before)
    elseif owed + charge > capacity then
      call('DECRBY', key, charge_text)
      if owed > capacity then
        -- The quota was larger before: no debt exceeds the one of now.
        call('INCRBY', key, capacity - owed)
        owed = capacity
      end
      return owed * 2097152 + now % 2097152
    end
    if before == 0 or full_at % capacity < full_at - before then
      local ttl = math.max(math.ceil(capacity / 500), deadline <= 0 and 600000 or 1000)
      if is_anew then call('PEXPIRE', key, ttl) else call('PEXPIRE', key, ttl, 'GT') end
    end
    return owed * 2097152 + now % 2097152
  end
end

local KEYS, try, type = KEYS, redis.pcall, type
-- Keys outlive what they owe by at least a second, in tests by far: a TTL
-- collects garbage and never carries meaning.
local TTL_MIN = deadline <= 0 and 600000 or 1000
local answers, key_at, arg_at, keys_end = nil, 0, 2, #KEYS
-- Where the run's fields stand, and how many of its requests are left.
local run_at, run_left = 2, 0
if #ARGV == 3 then arg_at, run_left = 4, 1 end

local charge_texts, charges, capacities, renews, tiers_count = {}, {}, {}, {}, 0
while key_at < keys_end and #ARGV > 3 do
  if run_left == 0 then
    if ARGV[arg_at] == 'G' then break end
    run_left, run_at, tiers_count = ARGV[arg_at] + 0, arg_at + 1, 0
    arg_at = run_at
    repeat
      tiers_count = tiers_count + 1
      local shape = ARGV[arg_at + 1] + 0
      local flags = shape % 4
      charge_texts[tiers_count], charges[tiers_count] = ARGV[arg_at], ARGV[arg_at] + 0
      capacities[tiers_count], renews[tiers_count] = (shape - flags) / 4, flags >= 2
      arg_at = arg_at + 2
    until flags % 2 == 0
  end
  -- What undoes the request: where it began, where it was denied, and what the
  -- buckets that started anew held before.
  local keys_before, denied_at, restarted = key_at, nil, nil
  local is_odd = false
  for tier = 1, tiers_count do
    key_at = key_at + 1
    local key, owed, capacity = KEYS[key_at], 0, capacities[tier]
    if denied_at then
      -- The request is denied already: a look will do.
      local text = call('GET', key)
      local full_at = text and tonumber(text)
      if text and not full_at then is_odd = true break end
      if full_at and full_at > now then owed = full_at - now end
    else
      local full_at = try('INCRBY', key, charge_texts[tier])
      -- Written by a quota with other ticks, or the server takes no writes.
      if type(full_at) == 'table' then is_odd = true break end
      local before = full_at - charges[tier]
      local has_restarted = before <= now
      if has_restarted then
        full_at = call('INCRBY', key, now - before)
        if tiers_count > 1 then
          restarted = restarted or {}
          restarted[key_at] = before
        end
      else
        owed = before - now
      end
      if full_at - now > capacity then
        denied_at = key_at
        call('DECRBY', key, charge_texts[tier])
      elseif before == 0 or renews[tier] or full_at % capacity < full_at - before then
        local ttl = math.max(math.ceil(capacity / 500), TTL_MIN)
        if has_restarted then call('PEXPIRE', key, ttl) else call('PEXPIRE', key, ttl, 'GT') end
      end
    end
    if owed > capacity then
      -- The quota was larger before: no debt exceeds the one of now.
      call('INCRBY', key, capacity - owed)
      owed = capacity
    end
    answers = answers or { now }
    answers[key_at + 1] = owed
  end

  for at = keys_before + 1, (denied_at or is_odd and key_at or 0) - 1 do
    local taken = charge_texts[at - keys_before]
    local before = restarted and restarted[at]
    if not before then
      call('DECRBY', KEYS[at], taken)
    elseif before == 0 then
      call('DEL', KEYS[at])
    else
      -- The old time matters to a clock that steps back.
      call('INCRBY', KEYS[at], before - now - taken)
    end
  end
  if is_odd then
    -- This one, and those after it, the long way.
    key_at = keys_before
    break
  end
  run_left = run_left - 1
end
if key_at == keys_end then return answers end
local HORIZON, STEP_BACK_HELD, STRICT_COUNTS = 536457600000000, 5000000, 11
answers = answers or { now }

local function ttl_text(length_us)
  return string.format('%.0f', math.max(math.ceil(length_us / 1000), TTL_MIN))
end

