-- Prolongs the name if the hold is still there.
-- KEYS: lock. ARGV: hold, TTL in ms.
if redis.call('HEXISTS', KEYS[1], 'hold:' .. ARGV[1]) == 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
