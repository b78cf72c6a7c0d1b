-- A counter is rebuilt in steps, and the state of that is in the counter's hash: the
-- epoch and the history that it is for, how far the users of SQL have been staged, and
-- how far the stream has been read, with what is accepted and pending up to there. The
-- sums stay exact between the steps (uncount_next), so that any replica goes on with the
-- epoch.

-- Whether this owner may take a step: the marker is free, or its own. It is renewed.
local function alone(marker, owner, ms)
  local has = redis.call('GET', marker)
  if has and has ~= owner then
    return false
  end
  redis.call('SET', marker, owner, 'PX', ms)
  return true
end

-- Finds out what is to be done for a counter above an epoch: THERE, nothing; TAKEN,
-- another owner works at it; NEXT, go on with a rebuild; NONE, begin one above the epoch.
-- Answers with that, the epoch, the last user that was staged, and 1 where all were.
-- KEYS: counter, marker.
-- ARGV: operation, owner, time of the marker in ms, epoch.
function operations.survey()
  local units, _, epoch = counter(KEYS[1])
  if units and tonumber(epoch) > tonumber(ARGV[4]) then
    return {'THERE', epoch, '', ''}
  end
  if not alone(KEYS[2], ARGV[2], ARGV[3]) then
    return {'TAKEN', '', '', ''}
  end
  local kept = redis.call('HMGET', KEYS[1], 'epoch', 'next_epoch', 'next_history', 'next_user', 'next_loaded')
  local present, following = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
  if kept[3] == history() and following > present then
    return {'NEXT', kept[2], kept[4], kept[5]}
  end
  -- A database that was restored may be behind a rebuild of an earlier history.
  return {'NONE', digits(math.max(present, following)), '', ''}
end

-- Older servers are untested, and their XAUTOCLAIM hands out orders that were deleted.
local function assert_version()
  local major = string.match(redis.call('INFO', 'server'), 'redis_version:(%d+)')
  if tonumber(major or 0) < 7 then
    error('redis-stock needs Redis 7.0 or later, and this is ' .. (major or 'unknown'), 0)
  end
end

-- Begins the rebuild of an epoch that has just begun in SQL. It is called once for an
-- epoch: a counter that was installed and lost must not be rebuilt in the same one.
-- Answers with the epoch that is there or being rebuilt then.
-- KEYS: counter, staged users.
-- ARGV: operation, epoch, 1 where users are to be staged.
function operations.begin()
  assert_version()
  local kept = redis.call('HMGET', KEYS[1], 'epoch', 'next_epoch')
  local there = math.max(tonumber(kept[1] or 0), tonumber(kept[2] or 0))
  if there >= tonumber(ARGV[2]) then
    return digits(there)
  end
  redis.call('UNLINK', KEYS[2])
  redis.call('HSET', KEYS[1], 'next_epoch', ARGV[2], 'next_history', history(), 'next_cursor', '0-0', 'next_promised', '0',
    'next_user', '', 'next_loaded', ARGV[3] == '1' and '0' or '1', 'next_staged', '0')
  return ARGV[2]
end

-- The state of the rebuild of an epoch, or what is to be answered where it is not the
-- one in progress, has lost what was staged, or belongs to another owner.
local function rebuild(goods, staged, marker)
  local kept = redis.call('HMGET', goods, 'next_epoch', 'next_history', 'next_loaded', 'next_user', 'next_cursor', 'next_promised', 'next_staged',
    'epoch')
  if kept[1] ~= ARGV[4] or kept[2] ~= history() or tonumber(kept[8] or 0) >= tonumber(ARGV[4]) then
    return nil, 'LOST'
  end
  if redis.call('HLEN', staged) ~= tonumber(kept[7]) then
    redis.call('HDEL', goods, 'next_epoch', 'next_history', 'next_cursor')
    return nil, 'LOST'
  end
  if not alone(marker, ARGV[2], ARGV[3]) then
    return nil, 'TAKEN'
  end
  return {loaded = kept[3] == '1', user = kept[4], cursor = kept[5], promised = tonumber(kept[6])}
end

-- What is staged for an abandoned rebuild is forgotten after this time.
local STAGED_MS = 600000

-- Stages a page of what users have by the ledger, with the place where the next begins.
-- KEYS: counter, staged users, marker.
-- ARGV: operation, owner, time of the marker in ms, epoch, the user before the page, its
-- last user, 1 where it is the last page, and users with their units, and the marks of users (operations.add).
function operations.stage()
  local state, other = rebuild(KEYS[1], KEYS[2], KEYS[3])
  if not state then
    return other
  end
  if state.loaded or state.user ~= ARGV[5] then
    return 'LOST' -- an earlier owner has staged it meanwhile
  end
  for i = 8, #ARGV, 200 do
    redis.call('HSET', KEYS[2], unpack(ARGV, i, math.min(i + 199, #ARGV)))
  end
  redis.call('PEXPIRE', KEYS[2], STAGED_MS)
  redis.call('HSET', KEYS[1], 'next_user', ARGV[6], 'next_loaded', ARGV[7], 'next_staged', redis.call('HLEN', KEYS[2]))
  return 'MORE'
end

-- Puts the counter in place: what the allocation in SQL had when its epoch began, less
-- what is on the stream; and what each user has, in SQL and on the stream.
local function install(promised)
  redis.call('UNLINK', KEYS[2])
  if redis.call('EXISTS', KEYS[4]) == 1 then
    redis.call('RENAME', KEYS[4], KEYS[2])
    redis.call('PERSIST', KEYS[2])
  end
  redis.call('HSET', KEYS[1], 'units', digits(tonumber(ARGV[6]) - promised), 'promised', digits(promised),
    'epoch', ARGV[4], 'history', history(), 'limit', ARGV[7], 'closed', ARGV[10], 'added', ARGV[11])
  redis.call('HDEL', KEYS[1], 'next_epoch', 'next_history', 'next_cursor', 'next_promised', 'next_user', 'next_loaded', 'next_staged')
  redis.call('DEL', KEYS[5])
  redis.pcall('PUBLISH', ARGV[8], ARGV[5])
  return 'THERE'
end

-- Whether a text is a number to a consumer as well, which has 64 bits.
local function whole(text)
  return string.match(text or '', '^[+-]?%d+$') and #text <= 18
end

-- The quantity of an order of an item, from the fields of an entry in the order in which
-- sell adds them, with the ttl at the end; nil where a consumer would discard the entry: nothing
-- uncounts it then.
local function ordered(fields, goods)
  if fields[2] ~= goods or (fields[8] or '') == '' or (fields[10] or '') == '' then
    return nil
  end
  for _, i in ipairs({4, 6, 12, 14}) do -- quantity, epoch, remaining, at
    if not whole(fields[i]) then
      return nil
    end
  end
  if fields[#fields - 1] == 'ttl' and fields[#fields] ~= '' and not whole(fields[#fields]) then
    return nil
  end
  local quantity = tonumber(fields[4])
  return quantity > 0 and quantity or nil
end

-- Counts a page of the stream, and installs the counter in the same step where that was
-- its end. Orders that are in the ledger and still on the stream would be subtracted
-- twice, until settling them gives that back: those that a consumer has in hand are
-- settled before.
-- KEYS: counter, users, orders, staged users, marker.
-- ARGV: operation, owner, time of the marker in ms, epoch, goods, units, limit of a user
-- or 0, channel, size of the page, 1 where the counter is closed, and what was added to the units in this epoch.
function operations.page()
  local state, other = rebuild(KEYS[1], KEYS[4], KEYS[5])
  if not state or not state.loaded then
    return other or 'LOST'
  end
  local promised, cursor = state.promised, state.cursor
  local entries = redis.call('XRANGE', KEYS[3], '(' .. cursor, '+', 'COUNT', ARGV[9])
  for _, entry in ipairs(entries) do
    local quantity = ordered(entry[2], ARGV[5])
    if quantity then
      promised = promised + quantity
      local user = entry[2][18] or ''
      if tonumber(ARGV[7]) > 0 and ARGV[10] ~= '1' and user ~= '' then
        redis.call('HINCRBY', KEYS[4], user, digits(quantity))
      end
    end
    cursor = entry[1]
  end
  if #entries < tonumber(ARGV[9]) then
    return install(promised)
  end
  redis.call('PEXPIRE', KEYS[4], STAGED_MS)
  redis.call('HSET', KEYS[1], 'next_cursor', cursor, 'next_promised', digits(promised), 'next_staged', redis.call('HLEN', KEYS[4]))
  return 'MORE'
end

-- Takes the units off a closed counter, which are on their way back into the row then, and
-- answers with what is accepted and pending, and the epoch. No order adds to that.
-- KEYS: counter, orders.
function operations.drain()
  local units, promised, epoch, _, closed = counter(KEYS[1])
  if not units or not closed then
    return ABSENT
  end
  if redis.call('XLEN', KEYS[2]) == 0 then
    promised = 0
  end
  count(KEYS[1], 0, promised)
  return {digits(promised), epoch}
end

-- Keeps the marker from expiring, where it is still the owner's.
-- KEYS: marker.
-- ARGV: operation, owner, time of the marker in ms.
function operations.renew()
  if redis.call('GET', KEYS[1]) == ARGV[2] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return 'OK'
end

-- Leaves the rebuild to others.
-- KEYS: marker.
-- ARGV: operation, owner.
function operations.release()
  if redis.call('GET', KEYS[1]) == ARGV[2] then
    redis.call('DEL', KEYS[1])
  end
  return 'OK'
end

-- Shows the counter: units, promised, epoch. Where the stream is empty nothing is pending,
-- whatever the counter has: the difference shows as drift.
-- KEYS: counter, orders.
function operations.look()
  local units, promised, epoch = counter(KEYS[1])
  if not units then
    return ABSENT
  end
  if redis.call('XLEN', KEYS[2]) == 0 then
    promised = 0
  end
  return {digits(units), digits(promised), epoch}
end
