-- The twin of fixed_window.rs: "start count". Windows of the calendar are not computed here:
-- the node sends them (calendar.rs).

-- Where a bucket stands in time: its own time, and whether it was rebased.
local function flow(known, unix)
  if known <= unix then return unix, false end
  if known - unix <= STEP_BACK_HELD then return known, false end
  return unix, true
end

-- The start of the window that contains a time. Of the calendar the node has sent the
-- starts of four windows; the time is in one of the first three: see knows_windows.
local function window_start(quota, time)
  local starts = quota.starts
  if not starts then return time - time % quota.period end
  return time >= starts[3] and starts[3] or time >= starts[2] and starts[2] or starts[1]
end

-- The end of the window that starts there.
local function window_end(quota, start)
  local starts = quota.starts
  if not starts then return start + quota.period end
  return start < starts[2] and starts[2] or start < starts[3] and starts[3] or starts[4]
end

-- Whether the windows that the node has sent contain the time, and every time to which a
-- bucket may be held.
local function knows_windows(quota, unix)
  local starts = quota.starts
  return not starts or (unix >= starts[1] and unix + STEP_BACK_HELD < starts[4])
end

local function numbers(text)
  local list = {}
  if text then
    for number in string.gmatch(text, '%S+') do list[#list + 1] = tonumber(number) end
  end
  return list
end

local function set_numbers(key, list, gone_at, unix)
  local text = {}
  for i = 1, #list do text[i] = string.format('%.0f', list[i]) end
  redis.call('SET', key, table.concat(text, ' '), 'PX', ttl_text(gone_at - unix + STEP_BACK_HELD))
end

local fixed_window = {}

function fixed_window.roll(quota, text, unix)
  local state = numbers(text)
  local known = state[1] or 0
  local time, rebased = flow(known, unix)
  local start = window_start(quota, time)
  local count = 0
  if state[1] and (rebased or known >= start) then count = state[2] end
  return { start, count }
end

function fixed_window.fits(quota, state, cost)
  return state[2] + cost <= quota.limit
end

function fixed_window.left(quota, state)
  return math.max(quota.limit - state[2], 0)
end

function fixed_window.charge(state, cost)
  state[2] = state[2] + cost
end

function fixed_window.refund(state, cost)
  state[2] = math.max(state[2] - cost, 0)
end

-- What was charged at `since` counts in the window of that time only.
function fixed_window.put_back(quota, state, cost, since)
  if since >= state[1] then fixed_window.refund(state, cost) end
end

function fixed_window.gone_at(quota, state)
  return window_end(quota, state[1])
end
