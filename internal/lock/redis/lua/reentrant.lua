-- A reentrant lock is a hash of the owner, its token, and one field for each
-- time that it holds it: holds are counted by their ids, so that a script that
-- runs twice, because its answer was lost, counts once.
local function take(lock, owner, token, hold, ttl)
  if token then
    redis.call('HSET', lock, 'owner', owner, 'token', token)
  end
  redis.call('HSET', lock, 'hold:' .. hold, 1)
  redis.call('PEXPIRE', lock, ttl)
  return {TAKEN, redis.call('HGET', lock, 'token')}
end

-- give_back ends one hold. It tells whether there was one, and whether it was
-- the last.
local function give_back(lock, hold)
  if redis.call('HDEL', lock, 'hold:' .. hold) == 0 then
    return false, false
  end
  if redis.call('HLEN', lock) > 2 then
    return true, false
  end
  redis.call('DEL', lock)
  return true, true
end
