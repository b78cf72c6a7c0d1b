-- Takes the name if it is free, or once more if the owner has it.
-- KEYS: lock, counter. ARGV: owner, TTL in ms, floor, hold.
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner == ARGV[1] then
  return take(KEYS[1], owner, nil, ARGV[4], ARGV[2])
end
if owner then
  return {HELD, '0'}
end
local token = next_token(KEYS[2], ARGV[3])
if not token then
  return {NO_FLOOR, '0'}
end
return take(KEYS[1], ARGV[1], token, ARGV[4], ARGV[2])
