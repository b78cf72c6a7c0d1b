-- Decides on a batch of purchases, first come first served.
-- KEYS: counter, users, orders, and a request each purchase.
-- ARGV: operation, goods, replica, time, place in a trace, and for each purchase:
-- request id, quantity, user, order number, and for how long a reservation holds the units,
-- or ''.
-- A closed counter is one with nothing left. What is left is answered with the epoch and what was added in it, and
-- what a buyer has with the epoch.
function operations.sell()
  local units, promised, epoch, limit, closed = counter(KEYS[1])
  if not units then
    return ABSENT
  end
  if closed then
    units, limit = 0, 0
  end
  local answers, sold = {}, false
  for i = 1, #KEYS - 3 do
    local request, quantity, user, order, ttl = unpack(ARGV, 1 + 5 * i, 5 + 5 * i)
    local n = tonumber(quantity)
    local first = redis.call('GET', KEYS[3 + i])
    local had = 0
    if limit > 0 and not first then
      had = tonumber(redis.call('HGET', KEYS[2], user) or 0)
    end
    if first then
      answers[i] = {KNOWN, first}
    elseif limit > 0 and user == '' then
      answers[i] = {NOBODY, ''}
    elseif limit > 0 and had + n > limit then
      answers[i] = {LIMITED, digits(limit) .. ' ' .. digits(had) .. ' ' .. epoch}
    elseif n > units then
      answers[i] = {SHORT, digits(units) .. ' ' .. epoch .. ' ' .. (redis.call('HGET', KEYS[1], 'added') or 0)}
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
