-- Everything that changes the stock in Redis is one script with several
-- operations, so that a server that has lost its memory is recognized: it does
-- not know the script either. Whoever meets such a server begins a new run of it
-- (renew), and no counter of an earlier run is believed any more.

-- What is answered for a purchase.
local SOLD, KNOWN, SHORT, LIMITED, NOBODY = 1, 2, 0, -1, -2

-- What is answered where a counter has first to be installed: there is none, it
-- is of an earlier run, or of an earlier epoch than is asked for.
local ABSENT = 'ABSENT'

local operations = {}

-- The number of units that may be promised, of those that are promised and not
-- in the ledger yet, the epoch of both, as a string, and the limit of one buyer, or
-- 0; nil where there is none that may be believed.
local function counter(goods, run)
  local kept = redis.call('HMGET', goods, 'units', 'promised', 'epoch', 'run', 'limit')
  if not kept[1] or kept[4] ~= (redis.call('GET', run) or '0') then
    return nil
  end
  return tonumber(kept[1]), tonumber(kept[2]), kept[3], tonumber(kept[5] or 0)
end

local function digits(n) return string.format('%.0f', n) end

local function count(goods, units, promised)
  redis.call('HSET', goods, 'units', digits(units), 'promised', digits(promised))
end

-- Takes off a user what the ledger counts, or nobody.
local function uncount(users, limit, user, quantity)
  if limit > 0 and user ~= '' then
    redis.call('HINCRBY', users, user, -tonumber(quantity))
  end
end
