-- Ends one hold; with the last one the name is free, and a waiter is
-- woken.
-- KEYS: lock. ARGV: hold, channel.
local ours, last = give_back(KEYS[1], ARGV[1])
if last then
  redis.call('PUBLISH', ARGV[2], '')
end
return ours and 1 or 0
