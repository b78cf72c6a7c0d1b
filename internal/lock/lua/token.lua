-- next_token counts the holders of a name. The counter never expires. Where
-- Redis has lost it, it begins again above every token that was given before:
-- above the floor, which the store behind the lock has seen, and above the
-- microseconds of the clock, than which no counter was ever faster. Where no
-- floor was given, the answer is false: come back with one. A counter that is
-- below the microseconds of any clock has been lost, whoever counted since.
local LEAST = 10 ^ 15
local function next_token(counter, floor)
  local token = redis.call('INCR', counter)
  if token < LEAST then
    if floor == '' then
      return false
    end
    local time = redis.call('TIME')
    token = math.max(tonumber(floor), time[1] * 1000000 + time[2]) + 1
    redis.call('SET', counter, string.format('%.0f', token))
  end
  if token < 2 ^ 53 then
    return string.format('%.0f', token)
  end
  return redis.call('GET', counter) -- a number of Lua would round it
end

-- What an acquiring script answers, with the token as a string of digits.
local TAKEN, HELD, NO_FLOOR = 1, 0, -1
