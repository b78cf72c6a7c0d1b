-- An order of an epoch that is over, which the ledger does not have, is offered
-- again. Where the stream still has it, the installation of the present epoch has
-- kept its units back, and it only changes its epoch; where the stream was lost,
-- it needs units like a new one, and room under the limit: a closed counter has
-- neither. An order that another consumer has settled is not on the stream either, and
-- its request is forgotten after a while: LOOK, where the ledger was read longer ago
-- than that. So is one that another consumer has dead-lettered, which a key of its own
-- tells for as long. Answers ABSENT where no later epoch is installed.
-- KEYS: counter, users, orders, dead, request, staged users, dead-lettered.
-- ARGV: operation, group, id, and the fields of the order: goods, quantity, epoch,
-- request, order, remaining, at, replica, user, ttl; then the limit under which it was
-- promised, whether that was another one already than is in force now, the place in a
-- trace, when the ledger did not have the order, by this server's clock, and the time
-- to remember a request, both in ms.
function operations.restore()
  local units, promised, epoch, limit, closed = counter(KEYS[1])
  if not units or tonumber(epoch) <= tonumber(ARGV[6]) then
    return ABSENT
  end
  local goods, quantity, _, request, order, remaining, at, replica, user, ttl = unpack(ARGV, 4, 13)
  local earlier = (ARGV[15] == '1' or ARGV[14] ~= digits(limit)) and '1' or '0'
  redis.call('XACK', KEYS[3], ARGV[2], ARGV[3])
  local fields = held({'goods', goods, 'quantity', quantity, 'epoch', epoch, 'request', request, 'order', order,
    'remaining', remaining, 'at', at, 'replica', replica, 'user', user, 'limit', digits(limit),
    'earlier', earlier, 'trace', ARGV[16]}, ttl)
  if redis.call('XDEL', KEYS[3], ARGV[3]) == 1 then
    uncount_next(KEYS[1], KEYS[6], ARGV[3], user, quantity)
  else
    local first = redis.call('GET', KEYS[5])
    if first and string.sub(first, 1, #order) == order or redis.call('EXISTS', KEYS[7]) == 1 then
      return 'KNOWN' -- another has offered it again, settled it, or dead-lettered it
    end
    if now() - tonumber(ARGV[17]) >= tonumber(ARGV[18]) then
      return 'LOOK'
    end
    local had = limit > 0 and not closed and user ~= '' and tonumber(redis.call('HGET', KEYS[2], user) or 0) or nil
    local beyond = had and had + tonumber(quantity) > limit
    if first or beyond or closed or tonumber(quantity) > units then
      local reason = first and 'sold again' or beyond and 'beyond the limit' or 'nothing left'
      redis.call('XADD', KEYS[4], '*', 'reason', reason, unpack(fields))
      redis.call('SET', KEYS[7], '1', 'PX', ARGV[18])
      return 'DEAD'
    end
    if had then
      redis.call('HINCRBY', KEYS[2], user, quantity)
    end
    count(KEYS[1], units - tonumber(quantity), promised + tonumber(quantity))
  end
  redis.call('XADD', KEYS[3], '*', unpack(fields))
  redis.call('SET', KEYS[5], memory(order, goods, quantity, remaining, replica, user, at, ttl))
  return 'RESTORED'
end

-- Dead-letters an order that can never be in the ledger, and gives back what is
-- kept for it.
-- KEYS: counter, users, orders, dead, request, staged users, dead-lettered.
-- ARGV: operation, group, id, reason, channel, and the fields of the order as for
-- restore; then the time to remember it in ms.
function operations.bury()
  local goods, quantity, epoch, request, order, remaining, at, replica, user, ttl = unpack(ARGV, 6, 15)
  redis.call('XACK', KEYS[3], ARGV[2], ARGV[3])
  if redis.call('XDEL', KEYS[3], ARGV[3]) == 0 then
    return 0 -- another consumer has dealt with it, or the stream has lost it
  end
  uncount_next(KEYS[1], KEYS[6], ARGV[3], user, quantity)
  redis.call('XADD', KEYS[4], '*', unpack(held({'reason', ARGV[4], 'goods', goods, 'quantity', quantity, 'epoch', epoch,
    'request', request, 'order', order, 'remaining', remaining, 'at', at, 'replica', replica, 'user', user}, ttl)))
  redis.call('SET', KEYS[7], '1', 'PX', ARGV[16])
  local first = redis.call('GET', KEYS[5])
  if first and string.sub(first, 1, #order) == order then
    redis.call('DEL', KEYS[5])
  end
  local kept = redis.call('HMGET', KEYS[1], 'units', 'promised', 'limit', 'closed')
  if kept[1] then
    count(KEYS[1], tonumber(kept[1]) + tonumber(quantity), tonumber(kept[2]) - tonumber(quantity))
    uncount(KEYS[2], kept[4] == '1' and 0 or tonumber(kept[3] or 0), user, quantity)
    redis.pcall('PUBLISH', ARGV[5], goods)
  end
  return 1
end

