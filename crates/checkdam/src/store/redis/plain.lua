
-- Plain requests: takes of enforced buckets that count in microseconds. Most
-- requests are, so they are answered before anything else is even defined.
--
-- Two fields a tier: the charge, and eight times the capacity, plus 1 if the
-- next tier belongs to the same request, 2 if the TTL must be set anew, 4 if the
-- tier is the only one of the call: then the answer is a text, which costs less
-- than a table: the clock's seconds and microseconds, and the time owed.
-- The value is charged at once, and put right afterwards where that was too
-- early. A tier's answer is the time that its bucket owed.
local KEYS, ARGV, try, type = KEYS, ARGV, redis.pcall, type
-- Requests of one rule have the same fields: they are read once.
local charge_text, charge, shape_text, flags, capacity, has_next
while key_at < keys_end and ARGV[arg_at] ~= 'G' do
  -- What undoes the request: where it began, where it was denied, and what the
  -- buckets that started anew held before.
  local keys_before, args_before, denied_at, restarted = key_at, arg_at, nil, nil
  local is_odd = false
  repeat
    key_at = key_at + 1
    local key, owed = KEYS[key_at], 0
    if ARGV[arg_at] ~= charge_text then
      charge_text = ARGV[arg_at]
      charge = charge_text + 0
    end
    if ARGV[arg_at + 1] ~= shape_text then
      shape_text = ARGV[arg_at + 1]
      local shape = shape_text + 0
      flags = shape % 8
      capacity = (shape - flags) / 8
      has_next = flags % 2 == 1
    end
    arg_at = arg_at + 2
    if denied_at then
      -- The request is denied already: a look will do.
      local text = call('GET', key)
      local full_at = text and tonumber(text)
      if text and not full_at then is_odd = true break end
      if full_at and full_at > now then owed = full_at - now end
    else
      local full_at = try('INCRBY', key, charge_text)
      -- Written by a quota with other ticks, or the server takes no writes.
      if type(full_at) == 'table' then is_odd = true break end
      local before = full_at - charge
      local has_restarted = before <= now
      if has_restarted then
        full_at = call('INCRBY', key, now - before)
        if has_next then
          restarted = restarted or {}
          restarted[key_at] = before
        end
      else
        owed = before - now
      end
      if full_at - now > capacity then
        denied_at = key_at
        call('DECRBY', key, charge_text)
      elseif before == 0 or flags % 4 >= 2 or full_at % capacity < full_at - before then
        -- The key outlives what it owes if its TTL, twice the capacity, is set
        -- anew whenever full_at passes a multiple of the capacity.
        local ttl = math.ceil(capacity / 500)
        if ttl < TTL_MIN then ttl = TTL_MIN end
        if has_restarted then call('PEXPIRE', key, ttl) else call('PEXPIRE', key, ttl, 'GT') end
      end
    end
    if owed > capacity then
      -- The quota was larger before: no debt exceeds the one of now.
      call('INCRBY', key, capacity - owed)
      owed = capacity
    end
    if flags >= 4 then return clock[1] .. ' ' .. clock[2] .. ' ' .. owed end
    answers = answers or { now }
    answers[key_at + 1] = owed
  until not has_next

  for at = keys_before + 1, (denied_at or is_odd and key_at or 0) - 1 do
    local taken = ARGV[args_before + 2 * (at - keys_before - 1)]
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
    key_at, arg_at = keys_before, args_before
    break
  end
end
if key_at == keys_end then return answers end
local HORIZON, STEP_BACK_HELD, STRICT_COUNTS = 536457600000000, 5000000, 11
answers = answers or { now }

local function ttl_text(length_us)
  return string.format('%.0f', math.max(math.ceil(length_us / 1000), TTL_MIN))
end

