-- An order of an epoch that is over, which the ledger does not have, is offered
-- again. Where the stream still has it, the installation of the present epoch has
-- kept its units back, and it only changes its epoch; where the stream was lost,
-- it needs units like a new one. Answers ABSENT where no later epoch is installed.
-- KEYS: counter, run, orders, dead, request.
-- ARGV: operation, group, id, and the fields of the order: goods, quantity, epoch,
-- request, order, remaining, at, replica, user.
function operations.readmit()
  local units, promised, epoch = counter(KEYS[1], KEYS[2])
  if not units or tonumber(epoch) <= tonumber(ARGV[6]) then
    return ABSENT
  end
  local goods, quantity, _, request, order, remaining, at, replica, user = unpack(ARGV, 4, 12)
  redis.call('XACK', KEYS[3], ARGV[2], ARGV[3])
  local fields = {'goods', goods, 'quantity', quantity, 'epoch', epoch, 'request', request, 'order', order,
    'remaining', remaining, 'at', at, 'replica', replica, 'user', user}
  if redis.call('XDEL', KEYS[3], ARGV[3]) == 0 then
    local first = redis.call('GET', KEYS[5])
    if first and string.sub(first, 1, #order) == order then
      return 'KNOWN' -- somebody else has offered it again, or settled it
    end
    if first or tonumber(quantity) > units then
      redis.call('XADD', KEYS[4], '*', 'reason', first and 'sold again' or 'nothing left', unpack(fields))
      return 'DEAD'
    end
    count(KEYS[1], units - tonumber(quantity), promised + tonumber(quantity))
  end
  redis.call('XADD', KEYS[3], '*', unpack(fields))
  redis.call('SET', KEYS[5], table.concat({order, goods, quantity, remaining, replica, user}, '\n'))
  return 'READMITTED'
end

-- Puts an order aside that can never be in the ledger, and gives back what is
-- kept for it.
-- KEYS: counter, users, orders, dead, request.
-- ARGV: operation, group, id, reason, limit of a user or 0, channel, and the
-- fields of the order as for readmit.
function operations.bury()
  local goods, quantity, epoch, request, order, remaining, at, replica, user = unpack(ARGV, 7, 15)
  redis.call('XACK', KEYS[3], ARGV[2], ARGV[3])
  if redis.call('XDEL', KEYS[3], ARGV[3]) == 0 then
    return 0 -- somebody else has
  end
  redis.call('XADD', KEYS[4], '*', 'reason', ARGV[4], 'goods', goods, 'quantity', quantity, 'epoch', epoch,
    'request', request, 'order', order, 'remaining', remaining, 'at', at, 'replica', replica, 'user', user)
  local first = redis.call('GET', KEYS[5])
  if first and string.sub(first, 1, #order) == order then
    redis.call('DEL', KEYS[5])
  end
  local kept = redis.call('HMGET', KEYS[1], 'units', 'promised')
  if kept[1] then
    count(KEYS[1], tonumber(kept[1]) + tonumber(quantity), tonumber(kept[2]) - tonumber(quantity))
    redis.call('PUBLISH', ARGV[6], goods)
  end
  if tonumber(ARGV[5]) > 0 and user ~= '' then
    redis.call('HINCRBY', KEYS[2], user, -tonumber(quantity))
  end
  return 1
end
