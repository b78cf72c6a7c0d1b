-- Takes what came back into a counter of this epoch: see addition.go. The mark of a user is in the hash of the users,
-- under a zero byte and the name, which no name begins with: how much was given back, and what the user had beside
-- the orders of redis-stock then. It is missing where both are 0.
-- KEYS: counter, users.
-- ARGV: operation, epoch, what was added to its units in SQL, channel, goods, and for each user: name, given back, and
-- what it has beside.
-- Answers with whether that changed something, or ABSENT, and the epoch of the counter.
function operations.add()
  local units, promised, epoch, limit, closed = counter(KEYS[1])
  if not units or epoch ~= ARGV[2] or closed then
    return {ABSENT, epoch or '0'}
  end
  local changed = false
  local more = tonumber(ARGV[3]) - tonumber(redis.call('HGET', KEYS[1], 'added') or 0)
  if more > 0 then
    redis.call('HSET', KEYS[1], 'added', ARGV[3])
    count(KEYS[1], units + more, promised)
    changed = true
  end
  for i = 6, limit > 0 and #ARGV or 0, 3 do
    local user, returned, beside = unpack(ARGV, i, i + 2)
    local mark = redis.call('HGET', KEYS[2], '\0' .. user) or '0 0'
    local last, before = string.match(mark, '^(%d+) (-?%d+)$')
    if tonumber(returned) > tonumber(last) then
      redis.call('HINCRBY', KEYS[2], user, digits(tonumber(beside) - tonumber(before)))
      redis.call('HSET', KEYS[2], '\0' .. user, returned .. ' ' .. beside)
      changed = true
    end
  end
  if changed then
    redis.pcall('PUBLISH', ARGV[4], ARGV[5])
  end
  return {changed and 'CHANGED' or 'OK', epoch}
end

return operations[ARGV[1]]()
