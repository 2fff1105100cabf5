-- Asks checkdam whether a request may pass. For HAProxy 2.6 or later with Lua.
--
-- In the configuration, as haproxy.cfg beside this file has it:
--   global
--       lua-load /etc/haproxy/checkdam.lua
--   frontend …
--       http-request lua.checkdam /v1/auth open
--   listen checkdam
--       bind abns@checkdam
--
-- The words after lua.checkdam are the path, and what happens without checkdam:
-- requests pass (open) or are refused with 503 (closed). A refused request gets
-- checkdam's answer whole. One that passes has the headers for its own answer in
-- the variables txn.checkdam.ratelimit, .policy, .limit, .remaining and .reset.

-- Where checkdam is asked: a listener of HAProxy itself, whose timeouts and
-- retries can be configured. Those of Lua's client cannot, and it tries four
-- times, each of which could be charged.
local ADDRESS = "abns@checkdam"
-- How long that listener may take, in milliseconds: longer than its own timeouts.
local TIMEOUT_MS = 2000

local VARIABLES = {
    ["ratelimit"] = "txn.checkdam.ratelimit",
    ["ratelimit-policy"] = "txn.checkdam.policy",
    ["x-ratelimit-limit"] = "txn.checkdam.limit",
    ["x-ratelimit-remaining"] = "txn.checkdam.remaining",
    ["x-ratelimit-reset"] = "txn.checkdam.reset",
}

-- Belong to one connection, or are made anew for the client's.
local OWN = { ["connection"] = true, ["content-length"] = true, ["date"] = true, ["transfer-encoding"] = true }

-- The headers of the client's request that are sent to checkdam: those that its
-- --header-attributes names. All of them would be too many for HAProxy itself.
local DESCRIBED_HEADERS = { "x-api-key" }

-- The values of a header, which HAProxy counts from 0.
local function list(values)
    local result = {}
    for index = 0, #values do
        if values[index] ~= nil then
            result[#result + 1] = values[index]
        end
    end
    return result
end

local function describe(txn)
    local sent = txn.http:req_get_headers()
    local headers = {}
    for _, name in ipairs(DESCRIBED_HEADERS) do
        if sent[name] then
            headers[name] = list(sent[name])
        end
    end
    headers["x-forwarded-method"] = { txn.sf:method() }
    headers["x-forwarded-uri"] = { txn.sf:pathq() }
    headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
    local forwarded = sent["x-forwarded-for"] and list(sent["x-forwarded-for"]) or {}
    forwarded[#forwarded + 1] = txn.sf:src()
    headers["x-forwarded-for"] = { table.concat(forwarded, ", ") }
    return headers
end

local function refuse(txn, status, headers, body)
    local reply = txn:reply({ status = status, body = body })
    for name, values in pairs(headers) do
        if not OWN[name] then
            for _, value in ipairs(list(values)) do
                reply:add_header(name, value)
            end
        end
    end
    txn:done(reply)
end

core.register_action("checkdam", { "http-req" }, function(txn, path, policy)
    local answer = core.httpclient():get({
        url = "http://checkdam" .. path,
        dst = ADDRESS,
        headers = describe(txn),
        timeout = TIMEOUT_MS,
    })
    local kind = answer.headers and answer.headers["content-type"]
    if answer.status == 200 then
        for name, variable in pairs(VARIABLES) do
            local values = answer.headers[name]
            if values then
                txn:set_var(variable, values[0])
            end
        end
    elseif kind and kind[0] == "application/problem+json" then
        refuse(txn, answer.status, answer.headers, answer.body)
    elseif answer.status and answer.status >= 400 and answer.status < 500 then
        -- What the client sent cannot even be asked about.
        refuse(txn, 400, {}, "")
    elseif policy ~= "open" then
        refuse(txn, 503, { ["retry-after"] = { [0] = "1" } }, "")
    end
end, 2)
