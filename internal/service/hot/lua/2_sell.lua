-- What is remembered of a request by the name that an earlier version gave it, where that
-- was the same purchase. Another client may have had the same name.
local function earlier(name, before, goods, quantity, user)
  local first = before and before ~= name and redis.call('GET', before)
  if not first then
    return nil
  end
  local of, n, by = string.match(first, '^[^\n]*\n([^\n]*)\n([^\n]*)\n[^\n]*\n[^\n]*\n([^\n]*)')
  return of == goods and n == quantity and by == user and first or nil
end

-- Decides on a batch of purchases, first come first served.
-- KEYS: counter, users, orders, a request each purchase, and then what an earlier version
-- called it, the same where it did not change.
-- ARGV: operation, goods, replica, time, place in a trace, and for each purchase:
-- request id, quantity, user, order number, and for how long a reservation holds the units,
-- or ''.
-- A closed counter is one with nothing left. What is left, or what a buyer has, is answered with the epoch.
function operations.sell()
  local units, promised, epoch, limit, closed = counter(KEYS[1])
  if not units then
    return ABSENT
  end
  if closed then
    units, limit = 0, 0
  end
  local answers, sold = {}, false
  local purchases = (#ARGV - 5) / 5
  for i = 1, purchases do
    local request, quantity, user, order, ttl = unpack(ARGV, 1 + 5 * i, 5 + 5 * i)
    local n = tonumber(quantity)
    local first = redis.call('GET', KEYS[3 + i])
    local before = not first and earlier(KEYS[3 + i], KEYS[3 + purchases + i], ARGV[2], quantity, user)
    local had = 0
    if limit > 0 and not first and not before then
      had = tonumber(redis.call('HGET', KEYS[2], user) or 0)
    end
    if first then
      answers[i] = {KNOWN, first}
    elseif before then
      answers[i] = {EARLIER, before}
    elseif limit > 0 and user == '' then
      answers[i] = {NOBODY, ''}
    elseif limit > 0 and had + n > limit then
      answers[i] = {LIMITED, digits(limit) .. ' ' .. digits(had) .. ' ' .. epoch}
    elseif n > units then
      answers[i] = {SHORT, digits(units) .. ' ' .. epoch}
    else
      units, promised, sold = units - n, promised + n, true
      local left = digits(units)
      local fields = {'goods', ARGV[2], 'quantity', quantity, 'epoch', epoch, 'request', request,
        'order', order, 'remaining', left, 'at', ARGV[4], 'replica', ARGV[3], 'user', user, 'limit', digits(limit),
        'trace', ARGV[5]}
      redis.call('XADD', KEYS[3], '*', unpack(held(fields, ttl)))
      redis.call('SET', KEYS[3 + i], memory(order, ARGV[2], quantity, left, ARGV[3], user, ARGV[4], ttl))
      if limit > 0 then
        redis.call('HINCRBY', KEYS[2], user, n)
      end
      answers[i] = {SOLD, left}
    end
  end
  if sold then
    count(KEYS[1], units, promised)
  end
  return answers
end

-- A purchase does not pay for the definition of the other operations.
if ARGV[1] == 'sell' then
  return operations.sell()
end
