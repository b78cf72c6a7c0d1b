-- Lifts the counter to the floor, where it is below.
-- KEYS: counter. ARGV: floor.
local count = tonumber(redis.call('GET', KEYS[1]) or 0)
if count < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', LIFE)
end
return 1
