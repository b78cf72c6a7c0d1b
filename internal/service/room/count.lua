-- What a line is now, for those who run the sale.
-- KEYS: when each of the line has asked, in ms; the admitted; the pace; the totals. ARGV: how long a buyer may be away, in ms.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
return {
  redis.call('ZCOUNT', KEYS[1], now - ARGV[1], '+inf'), redis.call('ZCOUNT', KEYS[2], now, '+inf'),
  tonumber(redis.call('HGET', KEYS[4], 'admissions') or 0), tonumber(redis.call('HGET', KEYS[4], 'left') or 0),
  redis.call('HGET', KEYS[3], 'average') or '',
}
