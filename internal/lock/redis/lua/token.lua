-- next_token counts the holders of a name. The counter expires LIFE after its last
-- use, so that names that are over leave nothing. Where Redis has lost it, or it has
-- expired, it begins again above every token that was given before: above the floor,
-- which the store behind the lock has seen, and above the microseconds of the clock,
-- than which no counter was ever faster. A counter expires by the same clock. So a
-- token goes back only where that is set back by more than LIFE, and the floor lacks
-- the token: no fenced sale has claimed the item with it.
--
-- Where no floor was given, the answer is false: come back with one. A counter that
-- is below the microseconds of any clock has been lost, even if it was counted since.
local LEAST = 10 ^ 15
local LIFE = 30 * 24 * 3600 * 1000 -- ms; tokenLife in base.go is the same
local function next_token(counter, floor)
  local token = redis.call('INCR', counter)
  redis.call('PEXPIRE', counter, LIFE)
  if token < LEAST then
    if floor == '' then
      return false
    end
    local time = redis.call('TIME')
    local clock = time[1] * 1000000 + time[2]
    if tonumber(floor) < clock then
      floor = string.format('%.0f', clock)
    end
    redis.call('SET', counter, floor, 'PX', LIFE) -- as digits: Lua would round a high floor
    token = redis.call('INCR', counter)
  end
  if token < 2 ^ 53 then
    return string.format('%.0f', token)
  end
  return redis.call('GET', counter) -- a number of Lua would round it
end

-- What an acquiring script answers, with the token as a string of digits.
local TAKEN, HELD, NO_FLOOR = 1, 0, -1
