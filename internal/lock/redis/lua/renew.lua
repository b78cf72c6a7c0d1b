-- Prolongs the name if it is still the owner's.
-- KEYS: lock. ARGV: owner, TTL in ms.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
