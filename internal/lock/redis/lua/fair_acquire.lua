-- Takes the name if it is free and the queue is empty, or once more if the
-- owner has it; queues up otherwise.
-- KEYS: lock, counter, queue, alive.
-- ARGV: owner, TTL in ms, floor, hold, patience in ms.
local owner = redis.call('HGET', KEYS[1], 'owner')
local hold = ARGV[4]
local head = first(KEYS[3], KEYS[4])
if owner ~= ARGV[1] and (owner or (head and head ~= hold)) then
  enter(KEYS[3], KEYS[4], hold, ARGV[5])
  return {HELD, '0'}
end
local token
if not owner then
  token = next_token(KEYS[2], ARGV[3])
  if not token then
    return {NO_FLOOR, '0'}
  end
end
leave(KEYS[3], KEYS[4], hold)
return take(KEYS[1], ARGV[1], token, hold, ARGV[2])
