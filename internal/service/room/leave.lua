-- A purchase has ended: one that was sold uses the admission up, and one that was not gives it back.
-- KEYS: the admitted; their orders; their purchases. ARGV: the buyer; the request id; 1 where it was sold.
local copies, id = string.match(redis.call('HGET', KEYS[3], ARGV[1]) or '', '^(%d+) (.*)$')
if id ~= ARGV[2] then return 0 end
if ARGV[3] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
elseif tonumber(copies) > 1 then
  return redis.call('HSET', KEYS[3], ARGV[1], copies - 1 .. ' ' .. ARGV[2])
end
return redis.call('HDEL', KEYS[3], ARGV[1])
