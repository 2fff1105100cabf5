-- The twin of sliding_window_strict.rs: "start count count …", newest first.
-- The quota's interval is the length of a part.
local sliding_window_strict = {}

function sliding_window_strict.roll(quota, text, unix)
  local state = numbers(text)
  local known = state[1] or 0
  local time, rebased = flow(known, unix)
  local start = time - time % quota.interval
  local moved = 0
  if not rebased and known < start then
    moved = math.min(math.floor((start - known) / quota.interval), STRICT_COUNTS)
  end
  local rolled = { start }
  for i = 1, STRICT_COUNTS do
    rolled[i + 1] = i > moved and state[i - moved + 1] or 0
  end
  return rolled
end

function sliding_window_strict.recorded(state)
  local used = 0
  for i = 2, STRICT_COUNTS + 1 do used = used + state[i] end
  return used
end

function sliding_window_strict.fits(quota, state, cost)
  return sliding_window_strict.recorded(state) + cost <= quota.limit
end

function sliding_window_strict.left(quota, state)
  return math.max(quota.limit - sliding_window_strict.recorded(state), 0)
end

function sliding_window_strict.charge(state, cost)
  state[2] = state[2] + cost
end

function sliding_window_strict.refund(state, cost)
  for i = 2, STRICT_COUNTS + 1 do
    local back = math.min(cost, state[i])
    state[i] = state[i] - back
    cost = cost - back
  end
end

-- What was charged at `since` is in the count of that part.
function sliding_window_strict.put_back(quota, state, cost, since)
  local i = 2 + math.max(math.ceil((state[1] - since) / quota.interval), 0)
  if i <= STRICT_COUNTS + 1 then state[i] = math.max(state[i] - cost, 0) end
end

function sliding_window_strict.gone_at(quota, state)
  return state[1] + STRICT_COUNTS * quota.interval
end
