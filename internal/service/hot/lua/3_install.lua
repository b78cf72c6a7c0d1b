-- The units of a goods that stand on the stream, by whatever epoch they were
-- promised.
local function on_stream(orders, goods)
  local promised, from = 0, '-'
  repeat
    local entries = redis.call('XRANGE', orders, from, '+', 'COUNT', 500)
    for _, entry in ipairs(entries) do
      local fields = entry[2] -- in the order in which they were added
      if fields[2] == goods then
        promised = promised + tonumber(fields[4])
      end
      from = '(' .. entry[1]
    end
  until #entries < 500
  return promised
end

-- Installs what the place in SQL had when its epoch began, less what has been
-- promised and is not in the ledger, unless a later epoch is there. Orders that
-- are in the ledger and still on the stream are subtracted twice: settling them
-- gives that back. Answers with the epoch that is there then.
-- KEYS: counter, run, orders. ARGV: operation, goods, units, epoch, channel.
function operations.install()
  local there = redis.call('HGET', KEYS[1], 'epoch')
  if there and tonumber(there) >= tonumber(ARGV[4]) then
    return there
  end
  local promised = on_stream(KEYS[3], ARGV[2])
  redis.call('HSET', KEYS[1], 'units', digits(tonumber(ARGV[3]) - promised), 'promised', digits(promised),
    'epoch', ARGV[4], 'run', redis.call('GET', KEYS[2]) or '0')
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
