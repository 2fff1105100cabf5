-- The twin of sliding_window.rs: "start current previous". The quota's
-- interval is its grain, its capacity the grains of a period.
local sliding_window = {}

function sliding_window.roll(quota, text, unix)
  local state = numbers(text)
  local known = state[1] or 0
  local time, rebased = flow(known, unix)
  local start = time - time % quota.period
  local current, previous = 0, 0
  if state[1] then
    if rebased or known >= start then
      current, previous = state[2], state[3]
    elseif known + quota.period >= start then
      previous = state[2]
    end
  end
  local rolled = { start, current, previous }
  rolled.passed = math.floor((time - start) / quota.interval)
  return rolled
end

-- Counts of a higher limit may lead beyond 2^53: what is rounded there is too
-- much all the same.
function sliding_window.fits(quota, state, cost)
  local parts = quota.capacity
  return (state[2] + cost) * parts + state[3] * (parts - state.passed) <= quota.limit * parts
end

function sliding_window.left(quota, state)
  local parts = quota.capacity
  local used = state[2] * parts + state[3] * (parts - state.passed)
  return math.floor(math.max(quota.limit * parts - used, 0) / parts)
end

function sliding_window.charge(state, cost)
  state[2] = state[2] + cost
end

function sliding_window.refund(state, cost)
  local rest = math.max(cost - state[2], 0)
  state[2] = math.max(state[2] - cost, 0)
  state[3] = math.max(state[3] - rest, 0)
end

-- What was charged at `since` is in this window's count or in the last one's.
function sliding_window.put_back(quota, state, cost, since)
  local i = since >= state[1] and 2 or since >= state[1] - quota.period and 3
  if i then state[i] = math.max(state[i] - cost, 0) end
end

function sliding_window.gone_at(quota, state)
  return state[1] + (state[2] > 0 and 2 or 1) * quota.period
end
