-- Ends one hold; with the last one the name is free, and the first in the queue
-- is woken.
-- KEYS: lock, queue, alive. ARGV: hold, channel.
local ours, last = give_back(KEYS[1], ARGV[1])
if last then
  wake(KEYS[1], KEYS[2], KEYS[3], ARGV[2])
end
return ours and 1 or 0
