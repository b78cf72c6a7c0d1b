-- Takes back an attempt that has been given up: its place in the queue, or its
-- hold where the name was taken and the answer did not come. The first
-- waiter is woken then, lest it waits for one that is gone.
-- KEYS: lock, queue, alive. ARGV: hold, channel.
leave(KEYS[2], KEYS[3], ARGV[1])
give_back(KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
  wake(KEYS[1], KEYS[2], KEYS[3], ARGV[2])
end
return 1
