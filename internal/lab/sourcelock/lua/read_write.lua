-- One read-write lock. KEYS are the writer, the readers and the announcement of a writer; ARGV are what to do, the id
-- of the hold and the TTL in ms. 1 is yes. Readers expire one by one, by the clock of Redis: a set has one expiry
-- only, and a reader that died must not hide behind those that live.
local writer, readers, wanted = KEYS[1], KEYS[2], KEYS[3]
local act, hold, ttl = ARGV[1], ARGV[2], ARGV[3]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)

local function is(key) return redis.call('GET', key) == hold end

local function read()
  redis.call('ZADD', readers, now + ttl, hold)
  redis.call('PEXPIRE', readers, math.max(ttl, redis.call('PTTL', readers)))
  return 1
end

local acts = {}

function acts.read()
  if redis.call('EXISTS', writer, wanted) > 0 then return 0 end
  return read()
end

function acts.write()
  if redis.call('EXISTS', writer, readers) > 0 then return 0 end
  redis.call('SET', writer, hold, 'PX', ttl)
  return 1
end

function acts.announce()
  if acts.write() == 0 then
    redis.call('SET', wanted, hold, 'PX', ttl)
    return 0
  end
  redis.call('DEL', wanted)
  return 1
end

function acts.renew()
  if is(writer) then return redis.call('PEXPIRE', writer, ttl) end
  if not redis.call('ZSCORE', readers, hold) then return 0 end
  return read()
end

function acts.release()
  local held = redis.call('ZREM', readers, hold)
  if is(writer) then held = redis.call('DEL', writer) end
  if is(wanted) then redis.call('DEL', wanted) end
  return held
end

return acts[act]()
