-- Takes the name if it is free. Asked again by the owner, whose first answer
-- was lost, it gives the same answer.
-- KEYS: lock, counter. ARGV: owner, TTL in ms, floor.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return {HELD, '0'}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {TAKEN, redis.call('GET', KEYS[2])}
end
local token = next_token(KEYS[2], ARGV[3])
if not token then
  redis.call('DEL', KEYS[1])
  return {NO_FLOOR, '0'}
end
return {TAKEN, token}
