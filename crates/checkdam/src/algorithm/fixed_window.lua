-- The twin of fixed_window.rs: "start count", and of calendar.rs.

-- Where a bucket stands in time: its own time, and whether it was rebased.
local function flow(known, unix)
  if known <= unix then return unix, false end
  if known - unix <= STEP_BACK_HELD then return known, false end
  return unix, true
end

local DAY = 86400000000

local function year_and_month(day)
  day = day + 719468
  local era = math.floor(day / 146097)
  local day_of_era = day - era * 146097
  local year_of_era = math.floor((day_of_era - math.floor(day_of_era / 1460)
    + math.floor(day_of_era / 36524) - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era
    - (365 * year_of_era + math.floor(year_of_era / 4) - math.floor(year_of_era / 100))
  local march_month = math.floor((5 * day_of_year + 2) / 153)
  local month = march_month < 10 and march_month + 3 or march_month - 9
  return era * 400 + year_of_era + (month <= 2 and 1 or 0), month
end

local function first_day(year, month)
  if month <= 2 then year = year - 1 end
  local march_month = month > 2 and month - 3 or month + 9
  return 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
    + math.floor((153 * march_month + 2) / 5) - 719468
end

-- align: 0 epoch, 1 day, 2 week, 3 month, 4 year.
local function window_start(align, period, unix)
  if align == 0 then return unix - unix % period end
  local day = math.floor(unix / DAY)
  if align == 2 then day = day - (day + 3) % 7 end
  if align >= 3 then
    local year, month = year_and_month(day)
    day = first_day(year, align == 3 and month or 1)
  end
  return day * DAY
end

local function window_end(align, period, start)
  if align <= 2 then return start + period end
  local year, month = year_and_month(math.floor(start / DAY))
  if align == 4 or month == 12 then return first_day(year + 1, 1) * DAY end
  return first_day(year, month + 1) * DAY
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
  text = table.concat(text, ' ')
  redis.call('SET', key, text, 'PX', ttl_text(gone_at - unix + STEP_BACK_HELD))
  return text
end

local fixed_window = {}

function fixed_window.roll(quota, text, unix)
  local state = numbers(text)
  local known = state[1] or 0
  local time, rebased = flow(known, unix)
  local start = window_start(quota.align, quota.period, time)
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

-- What counts against the bound of recorded use.
function fixed_window.recorded(state)
  return state[2]
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
  return window_end(quota.align, quota.period, state[1])
end
