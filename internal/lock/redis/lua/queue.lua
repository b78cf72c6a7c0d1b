-- The queue of a fair lock is a sorted set of those who wait, by arrival. Beside
-- it stands until when each of them is taken for alive: a waiter says so
-- again and again; one that does not has died and is dropped. When all of them have
-- died, both keys expire.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function leave(queue, alive, waiter)
  redis.call('ZREM', queue, waiter)
  redis.call('ZREM', alive, waiter)
end

local function first(queue, alive)
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', now())) do
    leave(queue, alive, dead)
  end
  return redis.call('ZRANGE', queue, 0, 0)[1]
end

local function enter(queue, alive, waiter, patience)
  if not redis.call('ZSCORE', queue, waiter) then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    redis.call('ZADD', queue, last + 1, waiter)
  end
  redis.call('ZADD', alive, now() + patience, waiter)
  redis.call('PEXPIRE', queue, 2 * patience)
  redis.call('PEXPIRE', alive, 2 * patience)
end

-- wake tells the first in the queue of a lock that it may try. A user without the right to publish gives names
-- back all the same.
local function wake(lock, queue, alive, channel)
  local waiter = first(queue, alive)
  if waiter then
    redis.pcall('PUBLISH', channel, lock .. ' ' .. waiter)
  end
end
