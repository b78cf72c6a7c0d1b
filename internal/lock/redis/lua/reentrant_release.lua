-- Ends one hold; with the last one the name is free, and a waiter is
-- woken. A user without the right to publish gives it back all the same.
-- KEYS: lock. ARGV: hold, channel.
local ours, last = give_back(KEYS[1], ARGV[1])
if last then
  redis.pcall('PUBLISH', ARGV[2], KEYS[1])
end
return ours and 1 or 0
