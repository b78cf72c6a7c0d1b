-- A purchase takes the admission of its buyer, unless another purchase has it. Copies of one purchase share it.
-- KEYS: the admitted; their purchases. ARGV: the buyer; the request id; how long an admission lasts, in ms.
local clock = redis.call('TIME')
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= clock[1] * 1000 + math.floor(clock[2] / 1000) then return 0 end
local copies, id = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%d+) (.*)$')
if id and id ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], (tonumber(copies) or 0) + 1 .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
