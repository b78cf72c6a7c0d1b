-- Takes orders off the stream that the ledger has. What is promised of each goods
-- is less by them; and those of an earlier epoch, which the installation of the
-- present one has taken for unsold, are given back.
-- KEYS: orders, the counters of so many goods, and a request each order.
-- ARGV: operation, group, time to remember a request in ms, number of goods,
-- channel, and for each order: id, number of its goods, epoch, quantity.
function operations.settle()
  local goods, given_back = {}, false
  for g = 1, tonumber(ARGV[4]) do
    local kept = redis.call('HMGET', KEYS[1 + g], 'units', 'promised', 'epoch')
    goods[g] = {units = tonumber(kept[1]), promised = tonumber(kept[2]), epoch = tonumber(kept[3])}
  end
  local requests = 1 + #goods
  for i = 1, #KEYS - requests do
    local id, g, epoch, quantity = unpack(ARGV, 2 + 4 * i, 5 + 4 * i)
    g = goods[tonumber(g)]
    redis.call('XACK', KEYS[1], ARGV[2], id)
    if redis.call('XDEL', KEYS[1], id) == 1 and g.units then
      g.promised = g.promised - tonumber(quantity)
      if tonumber(epoch) < g.epoch then
        g.units, given_back = g.units + tonumber(quantity), true
      end
    end
    redis.call('PEXPIRE', KEYS[requests + i], ARGV[3])
  end
  for g, kept in ipairs(goods) do
    if kept.units then
      count(KEYS[1 + g], kept.units, kept.promised)
    end
  end
  if given_back then
    redis.call('PUBLISH', ARGV[5], '') -- whoever believes that a goods is sold out
  end
  return #KEYS - requests
end
