-- The units of a goods that stand on the stream, by whatever epoch they were
-- promised: all of them, and those of each user, who is the field of that place.
local function on_stream(orders, goods)
  local promised, users, from = 0, {}, '-'
  repeat
    local entries = redis.call('XRANGE', orders, from, '+', 'COUNT', 500)
    for _, entry in ipairs(entries) do
      local fields = entry[2] -- in the order in which they were added
      if fields[2] == goods then
        promised = promised + tonumber(fields[4])
        local user = fields[18] or ''
        users[user] = (users[user] or 0) + tonumber(fields[4])
      end
      from = '(' .. entry[1]
    end
  until #entries < 500
  users[''] = nil
  return promised, users
end

-- Installs what the place in SQL had when its epoch began, less what has been
-- promised and is not in the ledger, unless a later epoch is there; and what each
-- user has, in SQL and promised. Orders that are in the ledger and still on the
-- stream would be subtracted, and counted, twice, until settling them gives that
-- back: those that a consumer has in hand are settled before. Answers with the epoch
-- that is there then, or PARTIAL where not all users are here that were put beside.
-- KEYS: counter, users, run, orders, users put beside.
-- ARGV: operation, goods, units, epoch, channel, limit of a user or 0, number of
-- users put beside.
function operations.install()
  local there = redis.call('HGET', KEYS[1], 'epoch')
  if there and tonumber(there) >= tonumber(ARGV[4]) then
    return there
  end
  if redis.call('HLEN', KEYS[5]) ~= tonumber(ARGV[7]) then
    return 'PARTIAL'
  end
  local promised, users = on_stream(KEYS[4], ARGV[2])
  redis.call('DEL', KEYS[2])
  if tonumber(ARGV[7]) > 0 then
    redis.call('RENAME', KEYS[5], KEYS[2])
    redis.call('PERSIST', KEYS[2])
  end
  if tonumber(ARGV[6]) > 0 then
    for user, n in pairs(users) do
      redis.call('HINCRBY', KEYS[2], user, digits(n))
    end
  end
  redis.call('HSET', KEYS[1], 'units', digits(tonumber(ARGV[3]) - promised), 'promised', digits(promised),
    'epoch', ARGV[4], 'run', redis.call('GET', KEYS[3]) or '0', 'limit', ARGV[6])
  redis.call('PUBLISH', ARGV[5], ARGV[2])
  return ARGV[4]
end

-- Begins a new run. It is sent in full where the server does not know the script,
-- and so makes it known in the same step.
-- KEYS: run.
function operations.renew() return redis.call('INCR', KEYS[1]) end

-- Shows the counter: units, promised, epoch.
-- KEYS: counter, run.
function operations.look()
  local units, promised, epoch = counter(KEYS[1], KEYS[2])
  if not units then
    return ABSENT
  end
  return {digits(units), digits(promised), epoch}
end
