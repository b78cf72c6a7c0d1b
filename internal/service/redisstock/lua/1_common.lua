-- Everything that changes the stock in Redis is one script with several operations,
-- each of which is one step of Redis.

-- What is answered for a purchase.
local SOLD, KNOWN, SHORT, LIMITED, NOBODY = 1, 2, 0, -1, -2

-- What is answered where a counter has first to be rebuilt: there is none, it is of
-- another history, or of an earlier epoch than is asked for.
local ABSENT = 'ABSENT'

local operations = {}

-- Names the history of the data on this server. A restart, a promotion and a full
-- resynchronization change it, and each may have lost orders or brought old data
-- back. The script cache does not show it: a master that was demoted, resynchronized and
-- promoted again still knows the script, and before Redis 7.0 a restarted one does.
local function history()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or error('INFO has no master_replid', 0)
end

-- The number of units that may be promised, of those that are promised and not
-- in the ledger yet, the epoch of both, as a string, the limit of one buyer, or 0, and
-- whether the counter is closed; nil where there is none of this history. A closed
-- counter sells nothing, and counts no users: its orders have been accepted before.
local function counter(goods)
  local kept = redis.call('HMGET', goods, 'units', 'promised', 'epoch', 'history', 'limit', 'closed')
  if not kept[1] or kept[4] ~= history() then
    return nil
  end
  return tonumber(kept[1]), tonumber(kept[2]), kept[3], tonumber(kept[5] or 0), kept[6] == '1'
end

local function digits(n) return string.format('%.0f', n) end

local function count(goods, units, promised)
  redis.call('HSET', goods, 'units', digits(units), 'promised', digits(promised))
end

-- Takes off a user what the ledger counts, or none.
local function uncount(users, limit, user, quantity)
  if limit > 0 and user ~= '' then
    redis.call('HINCRBY', users, user, -tonumber(quantity))
  end
end

-- Whether the id of a stream entry is at or before another.
local function upto(id, cursor)
  local ms, seq = string.match(id, '(%d+)-(%d+)')
  local last_ms, last_seq = string.match(cursor, '(%d+)-(%d+)')
  ms, last_ms = tonumber(ms), tonumber(last_ms)
  return ms < last_ms or ms == last_ms and tonumber(seq) <= tonumber(last_seq)
end

-- Takes an order that has just left the stream out of the rebuild in progress, if that
-- has counted it. Whatever removes an order from the stream calls this.
local function uncount_next(goods, staged, id, user, quantity)
  local kept = redis.call('HMGET', goods, 'next_cursor', 'next_promised')
  if not kept[1] or not upto(id, kept[1]) then
    return
  end
  redis.call('HSET', goods, 'next_promised', digits(tonumber(kept[2]) - tonumber(quantity)))
  if user ~= '' and redis.call('HEXISTS', staged, user) == 1 then
    redis.call('HINCRBY', staged, user, -tonumber(quantity))
  end
end

-- What is remembered of a request: that of a reservation ends with its time to live.
local function memory(order, goods, quantity, remaining, replica, user, at, ttl)
  local lines = {order, goods, quantity, remaining, replica, user, at}
  if ttl ~= '' then
    table.insert(lines, ttl)
  end
  return table.concat(lines, '\n')
end

-- The fields of an order on a stream, with those of a reservation.
local function held(fields, ttl)
  if ttl ~= '' then
    table.insert(fields, 'ttl')
    table.insert(fields, ttl)
  end
  return fields
end

-- The server's clock in ms. It only serves to be compared with itself.
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

function operations.clock() return digits(now()) end
