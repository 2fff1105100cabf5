
-- Plain requests: takes of enforced buckets that count in microseconds. Most
-- requests are, so they are answered before anything else is even defined.
--
-- Two fields a tier: the charge, and twice the capacity, plus 1 if the next tier
-- belongs to the same request.
-- Requests with the same fields are a run: their number, and the fields once. A
-- tier alone in its call has no number before its fields.
-- The value is charged at once, and put right afterwards where that was too
-- early. A tier's answer is the time that its bucket owed; it takes the place of
-- its key, so that no table has to grow. A key outlives what it owes if its TTL,
-- twice the capacity, is set anew whenever full_at passes a multiple of the
-- capacity: a key has one capacity for ever, which is part of its name.

-- Keys outlive what they owe by at least a second, in tests by far: a TTL
-- collects garbage and never carries meaning.
local TTL_MIN = deadline <= 0 and 600000 or 1000
-- A step back of the clock that is waited out.
local STEP_BACK_HELD = 5000000

-- One tier alone, by what it needs and nothing else; if it cannot be read, as any
-- other run.
if #ARGV == 3 then
  local key, charge_text, shape = KEYS[1], ARGV[2], ARGV[3] + 0
  local charge = charge_text + 0
  local full_at = redis.pcall('INCRBY', key, charge_text)
  if type(full_at) ~= 'table' then
    local capacity, before = shape / 2, full_at - charge
    local owed = before - now
    if owed <= 0 then
      owed = 0
      call('INCRBY', key, string.format('%d', now - before))
      full_at = now + charge
      if before == 0 or full_at % capacity < full_at - before then
        call('PEXPIRE', key, string.format('%d', math.max(math.ceil(capacity / 500), TTL_MIN)))
      end
    elseif owed + charge > capacity then
      call('DECRBY', key, charge_text)
      if owed > capacity + STEP_BACK_HELD then
        -- The clock has stepped far back: the bucket is empty at its new time.
        call('INCRBY', key, string.format('%d', capacity - owed))
        owed = capacity
      end
    elseif full_at % capacity < charge then
      call('PEXPIRE', key, string.format('%d', math.max(math.ceil(capacity / 500), TTL_MIN)))
    end
    return struct.pack('<dd', now, owed)
  end
end

local KEYS, try, type, format = KEYS, redis.pcall, type, string.format
local key_at, arg_at, keys_end = 0, 2, #KEYS
-- Where the run's fields stand, and how many of its requests are left.
local run_at, run_left = 2, #ARGV == 3 and 1 or 0
-- What a request of several tiers needs, made for the first that has them.
local charge_texts, charges, capacities, names, befores
local is_odd = false
while key_at < keys_end and not is_odd do
  if run_left == 0 then
    if ARGV[arg_at] == 'G' then break end
    run_left, run_at = ARGV[arg_at] + 0, arg_at + 1
  end
  local charge_text, shape = ARGV[run_at], ARGV[run_at + 1] + 0
  local charge, has_next = charge_text + 0, shape % 2
  arg_at = run_at + 2
  if has_next == 0 then
    local capacity = shape / 2
    for at = key_at + 1, key_at + run_left do
      local key = KEYS[at]
      local full_at = try('INCRBY', key, charge_text)
      -- No number, or the server takes no writes.
      if type(full_at) == 'table' then is_odd = true break end
      local before = full_at - charge
      local owed = before - now
      if owed <= 0 then
        owed = 0
        call('INCRBY', key, format('%d', now - before))
        full_at = now + charge
        if before == 0 or full_at % capacity < full_at - before then
          call('PEXPIRE', key, format('%d', math.max(math.ceil(capacity / 500), TTL_MIN)))
        end
      elseif owed + charge > capacity then
        call('DECRBY', key, charge_text)
        if owed > capacity + STEP_BACK_HELD then
          call('INCRBY', key, format('%d', capacity - owed))
          owed = capacity
        end
      elseif full_at % capacity < charge then
        call('PEXPIRE', key, format('%d', math.max(math.ceil(capacity / 500), TTL_MIN)))
      end
      KEYS[at], key_at, run_left = owed, at, run_left - 1
    end
  else
    -- Tables that grow cost more than tables that are made with some room.
    if not names then
      charge_texts, charges, capacities = { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
      -- Of each tier of the request: its key, and what its bucket held if it
      -- started anew, else false.
      names, befores = { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
    end
    local tiers_count = 1
    charge_texts[1], charges[1], capacities[1] = charge_text, charge, (shape - 1) / 2
    while has_next == 1 do
      tiers_count, shape = tiers_count + 1, ARGV[arg_at + 1] + 0
      has_next = shape % 2
      charge_texts[tiers_count], charges[tiers_count] = ARGV[arg_at], ARGV[arg_at] + 0
      capacities[tiers_count] = (shape - has_next) / 2
      arg_at = arg_at + 2
    end
    while run_left > 0 and not is_odd do
      -- At which tier the request is denied, or cannot be read.
      local denied_at, tiers_done = nil, tiers_count
      for tier = 1, tiers_count do
        local key, owed, capacity = KEYS[key_at + tier], 0, capacities[tier]
        names[tier] = key
        if denied_at then
          -- The request is denied already: a look will do.
          local text = call('GET', key)
          local full_at = text and tonumber(text)
          if text and not full_at then is_odd, tiers_done = true, tier - 1 break end
          if full_at and full_at > now then owed = full_at - now end
        else
          local full_at = try('INCRBY', key, charge_texts[tier])
          if type(full_at) == 'table' then is_odd, tiers_done = true, tier - 1 break end
          local before = full_at - charges[tier]
          if before <= now then
            call('INCRBY', key, format('%d', now - before))
            full_at, befores[tier] = now + charges[tier], before
          else
            owed, befores[tier] = before - now, false
          end
          if full_at - now > capacity then
            denied_at = tier
            call('DECRBY', key, charge_texts[tier])
          elseif before == 0 or full_at % capacity < full_at - before then
            call('PEXPIRE', key, format('%d', math.max(math.ceil(capacity / 500), TTL_MIN)))
          end
        end
        if owed > capacity + STEP_BACK_HELD then
          call('INCRBY', key, format('%d', capacity - owed))
          owed = capacity
        end
        KEYS[key_at + tier] = owed
      end

      if denied_at or is_odd then
        for tier = 1, denied_at and denied_at - 1 or tiers_done do
          local key, taken, before = names[tier], charge_texts[tier], befores[tier]
          if not before then
            call('DECRBY', key, taken)
          elseif before == 0 then
            call('DEL', key)
          else
            -- The old time matters to a clock that steps back.
            call('INCRBY', key, format('%d', before - now - taken))
          end
        end
      end
      if is_odd then
        for tier = 1, tiers_done do KEYS[key_at + tier] = names[tier] end
      else
        key_at, run_left = key_at + tiers_count, run_left - 1
      end
    end
  end
end
if key_at == keys_end then
  -- More do not go onto Lua's stack at once.
  if keys_end <= 4000 then return struct.pack('<d' .. string.rep('d', keys_end), now, unpack(KEYS)) end
end
-- A request that could not be read here, and those after it, take the general path.
local answers = { now }
for at = 1, key_at do answers[at + 1] = KEYS[at] end
if key_at == keys_end then return answers end
local HORIZON, STRICT_COUNTS = 536457600000000, 11

local function ttl_text(length_us)
  return string.format('%.0f', math.max(math.ceil(length_us / 1000), TTL_MIN))
end
