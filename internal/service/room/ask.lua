-- One call of a buyer: it joins the line, or looks. Each call also lets go who has left, and admits who may come in.
-- KEYS: the line, by order; when each of it has asked, in ms; the admitted, by the end of their admission, in ms; their
-- orders; their purchases; the pace; the totals. ARGV: the buyer; the order of its ticket, or empty to join; a draw; how long a buyer
-- may be away and an admission lasts, in ms; admissions a second; how many may be admitted at the same time.
local line, seen, admitted, orders, purchases, pace, totals = unpack(KEYS)
local buyer, ticket, draw = ARGV[1], ARGV[2], tonumber(ARGV[3])
local away, lasts, rate, most = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local this_second = clock[1] * 2097152 -- a draw is below that, and 2^53 above both until 2106

local function text(order) return order and string.format('%.0f', order) end

local function leave(b)
  redis.call('ZREM', line, b)
  redis.call('ZREM', seen, b)
end

local function total(of, n)
  redis.call('HINCRBY', totals, of, n)
  redis.call('PEXPIRE', totals, 86400000) -- a day
end

local gone = redis.call('ZRANGEBYSCORE', seen, '-inf', now - away, 'LIMIT', 0, 100)
for _, b in ipairs(gone) do leave(b) end
for _, b in ipairs(redis.call('ZRANGEBYSCORE', admitted, '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('ZREM', admitted, b)
  redis.call('HDEL', orders, b)
  redis.call('HDEL', purchases, b)
end

local own = text(redis.call('HGET', orders, buyer) or redis.call('ZSCORE', line, buyer))
if ticket == '' and not own then
  own = text(this_second + draw)
  redis.call('ZADD', line, own, buyer)
end
if own and (ticket == '' or ticket == own) and redis.call('ZSCORE', line, buyer) then
  redis.call('ZADD', seen, now, buyer)
  redis.call('PEXPIRE', line, 2 * away) -- when no one has asked for that long, all have left, and no one counts them
  redis.call('PEXPIRE', seen, 2 * away)
end

-- Only a second that is over has its order: a buyer that joins later in it may draw an earlier place.
local since = math.max(tonumber(redis.call('HGET', pace, 'since') or now), now - math.max(1000, 1000 / rate))
local free = math.min(math.floor((now - since) * rate / 1000), most - redis.call('ZCARD', admitted), 1000)
local let = 0
if free > 0 then
  local heads = redis.call('ZRANGEBYSCORE', line, '-inf', '(' .. text(this_second), 'WITHSCORES', 'LIMIT', 0, free)
  for i = 1, #heads, 2 do
    if tonumber(redis.call('ZSCORE', seen, heads[i]) or 0) > now - away then
      redis.call('ZADD', admitted, now + lasts, heads[i])
      redis.call('HSET', orders, heads[i], text(heads[i + 1]))
      let = let + 1
    else
      table.insert(gone, heads[i])
    end
    leave(heads[i])
  end
  redis.call('PEXPIRE', admitted, lasts)
  redis.call('PEXPIRE', orders, lasts)
end
if let > 0 then total('admissions', let) end
if #gone > 0 then total('left', #gone) end

-- The pace is the mean of the last half minute or so; before the first admissions it is the rate.
local average = rate
if redis.call('ZCARD', line) > 0 then
  local last = tonumber(redis.call('HGET', pace, 'last') or now)
  average = tonumber(redis.call('HGET', pace, 'average') or rate) * math.exp((last - now) / 30000) + let / 30
end
redis.call('HSET', pace, 'since', string.format('%.3f', since + let * 1000 / rate), 'last', text(now), 'average', tostring(average))
redis.call('PEXPIRE', pace, away)

if not own or ticket ~= '' and ticket ~= own then return {'ended', '', 0, ''} end
local ends = redis.call('ZSCORE', admitted, buyer)
if ends and tonumber(ends) > now then return {'admitted', own, ends - now, ''} end
local rank = redis.call('ZRANK', line, buyer)
if rank then return {'waiting', own, rank + 1, tostring(average)} end
return {'ended', '', 0, ''}
