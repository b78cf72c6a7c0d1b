-- Takes orders off the stream that the ledger has. What is promised of each item
-- is less by them; and those of an earlier epoch, which the installation of the
-- present one has taken for unsold, are given back.
-- KEYS: orders, the counter, the users and the staged users of so many items, and a
-- request each order.
-- ARGV: operation, group, time to remember a request in ms, number of items,
-- channel, and for each order: id, number of its goods, epoch, quantity, user.
function operations.settle()
  local goods, given_back = {}, false
  for g = 1, tonumber(ARGV[4]) do
    local kept = redis.call('HMGET', KEYS[3 * g - 1], 'units', 'promised', 'epoch', 'limit', 'next_cursor', 'closed')
    goods[g] = {units = tonumber(kept[1]), promised = tonumber(kept[2]), epoch = tonumber(kept[3]),
      limit = kept[6] == '1' and 0 or tonumber(kept[4] or 0), key = KEYS[3 * g - 1], users = KEYS[3 * g], next = kept[5] and KEYS[3 * g + 1]}
  end
  local requests = 1 + 3 * #goods
  for i = 1, #KEYS - requests do
    local id, g, epoch, quantity, user = unpack(ARGV, 1 + 5 * i, 5 + 5 * i)
    g = goods[tonumber(g)]
    redis.call('XACK', KEYS[1], ARGV[2], id)
    local removed = redis.call('XDEL', KEYS[1], id) == 1
    if removed and g.next then
      uncount_next(g.key, g.next, id, user, quantity)
    end
    if removed and g.units then
      g.promised = g.promised - tonumber(quantity)
      if tonumber(epoch) < g.epoch then
        g.units, given_back = g.units + tonumber(quantity), true
        uncount(g.users, g.limit, user, quantity)
      end
    end
    redis.call('PEXPIRE', KEYS[requests + i], ARGV[3])
  end
  for _, kept in ipairs(goods) do
    if kept.units then
      count(kept.key, kept.units, kept.promised)
    end
  end
  if given_back then
    redis.pcall('PUBLISH', ARGV[5], '') -- replicas that believe that an item is sold out
  end
  return #KEYS - requests
end

-- Forgets the consumers that have asked for nothing for long. One that has orders in hand stays until they are claimed:
-- with it, the group would lose them.
-- KEYS: orders. ARGV: operation, group, how long in ms. Answers with how many.
function operations.leave()
  local gone = 0
  for _, pairs_of in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[2])) do
    local consumer = {}
    for i = 1, #pairs_of, 2 do
      consumer[pairs_of[i]] = pairs_of[i + 1]
    end
    if consumer.pending == 0 and consumer.idle > tonumber(ARGV[3]) then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[2], consumer.name)
      gone = gone + 1
    end
  end
  return gone
end
