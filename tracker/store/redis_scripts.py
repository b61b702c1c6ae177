"""What runs inside Redis: each script is one step, seen whole or not at all.

The keys of a shard, all under one hash tag so that a cluster keeps them together
(NAMESPACE and SHARD as given; `lowmark:{production:0}:log`, say):

    lowmark:{NAMESPACE:SHARD}:meta        hash: format (`tracker.store.format`); epoch, owner, address, lease_ms and
                                          lease_until_ms of the newest owner, and began (its epoch,
                                          and the last record when it came); base and last (the
                                          log holds the records base+1 to last); commit (of the last
                                          one: to know it again); snapshot (a, b or empty) and
                                          snapshot_position; writing (which attempt at a snapshot is
                                          under way); missing (what was found lost)
    lowmark:{NAMESPACE:SHARD}:log         list: the records base+1 to last
    lowmark:{NAMESPACE:SHARD}:snapshot:a  list: the newest snapshot in pieces, or the one that is
    lowmark:{NAMESPACE:SHARD}:snapshot:b  being written

and one for all of them, which says where to look:

    lowmark:{NAMESPACE:all}:shards        set: numbers of the shards that were ever acquired

A script answers with a word first: OK, or why nothing was done.
"""

from __future__ import annotations

from tracker.store.format import NEWEST_FORMAT, OLDEST_FORMAT

# KEYS: meta. Every script begins so. Fields that are missing are false.
_META = """
local meta = KEYS[1]
local kind = redis.call('TYPE', meta).ok
if kind ~= 'none' and kind ~= 'hash' then return {'FOREIGN'} end
local function get(name) return redis.call('HGET', meta, name) end
local function number(name) return tonumber(get(name) or '0') end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if kind == 'hash' and not get('format') then return {'FOREIGN'} end
"""

# Leases and epochs are the same in every format: who owns the shard can be read whatever that one writes.
_FORMAT = f"""
local format = tonumber(get('format') or '{OLDEST_FORMAT}')
if not format or format < {OLDEST_FORMAT} or format > {NEWEST_FORMAT} then return {{'FORMAT', get('format')}} end
"""

# ARGV[1]: the epoch of whoever writes.
_OWNER = (
    _META
    + """
local epoch = tonumber(ARGV[1])
if number('epoch') > epoch then
  local of, began = string.match(get('began') or '', '^(%d+) (%d+)$')
  return {'FENCED', get('epoch'), of == get('epoch') and began or ''}
end
"""
    + _FORMAT
    + """
if number('epoch') < epoch then return {'SHORT', get('last') or '0'} end
if number('lease_ms') > 0 then
  redis.call('HSET', meta, 'lease_until_ms', string.format('%.0f', now_ms + number('lease_ms')))
end
"""
)

# What was written is of this feature level, and so is the store with it. Ends a script.
_RAISE_FORMAT = """
if tonumber(level) > format then redis.call('HSET', meta, 'format', level) end
return {'OK'}
"""

# ARGV: owner, lease_ms, an epoch whose lease does not count, the least epoch to give. Answers OK, epoch,
# last. An epoch is larger than the one before, and not smaller than the time: a server that has forgotten who acquired the
# shard last, since it has failed over to a replica that lacked that, gives none again.
ACQUIRE = (
    _META
    + _FORMAT
    + """
if (get('missing') or '') ~= '' then return {'MISSING', get('missing')} end
local left = number('lease_until_ms') - now_ms
if left > 0 and left <= 2 * number('lease_ms') and get('owner') ~= ARGV[1]
    and number('epoch') ~= tonumber(ARGV[3]) then
  return {'HELD', get('epoch'), get('owner'), get('address'), tostring(left)}
end
local epoch = string.format('%.0f', math.max(number('epoch') + 1, tonumber(ARGV[4]), now_ms))
redis.call('HSET', meta, 'format', tostring(format), 'epoch', epoch, 'owner', ARGV[1], 'address', '',
  'began', epoch .. ' ' .. (get('last') or '0'), 'lease_ms', ARGV[2], 'lease_until_ms', string.format('%.0f', now_ms + tonumber(ARGV[2])))
return {'OK', epoch, get('last') or '0'}
"""
)

# Answers OK, epoch, owner, address, milliseconds left.
LEASE = (
    _META
    + """
local left = number('lease_until_ms') - now_ms
if left < 0 or left > 2 * number('lease_ms') then left = 0 end
return {'OK', get('epoch') or '0', get('owner') or '', get('address') or '',
  string.format('%.0f', left)}
"""
)

# ARGV: epoch, lease_ms, the last position that the owner knows to be there, and an address, if there is another one.
RENEW = (
    _OWNER
    + """
if number('last') < tonumber(ARGV[3]) then return {'SHORT', get('last') or '0'} end
redis.call('HSET', meta, 'lease_ms', ARGV[2],
  'lease_until_ms', string.format('%.0f', now_ms + tonumber(ARGV[2])))
if ARGV[4] then redis.call('HSET', meta, 'address', ARGV[4]) end
return {'OK'}
"""
)

# KEYS: meta, log. ARGV: epoch, position of the first record, the last position that the owner knows
# to be there, a digest of the commit, its feature level, the records. A commit made before is known by its digest; the
# field is written again, so that WAIT has something to wait for.
COMMIT = (
    _OWNER
    + """
local first, known, digest, level = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local last = number('last')
if get('commit') == digest then
  redis.call('HSET', meta, 'commit', digest)
  return {'OK'}
end
if last < known or redis.call('LLEN', KEYS[2]) ~= last - number('base') then
  return {'SHORT', string.format('%.0f', number('base') + redis.call('LLEN', KEYS[2]))}
end
if first ~= last + 1 then return {'GAP', string.format('%.0f', last + 1)} end
for from = 6, #ARGV, 4000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, from, math.min(from + 3999, #ARGV)))
end
redis.call('HSET', meta, 'commit', digest, 'last', string.format('%.0f', last + #ARGV - 5))
"""
    + _RAISE_FORMAT
)

# KEYS: meta, the list. ARGV: epoch, a or b, the name of the attempt, then a piece of the snapshot, or nothing to begin
# anew. What is sent may come late, when its owner has given it up and written another one.
SNAPSHOT_PIECE = (
    _OWNER
    + """
local attempt, piece = ARGV[3], ARGV[4]
if get('snapshot') == ARGV[2] or (piece and get('writing') ~= attempt) then return {'LATE'} end
if piece then
  redis.call('RPUSH', KEYS[2], piece)
else
  redis.call('UNLINK', KEYS[2])
  redis.call('HSET', meta, 'writing', attempt)
end
return {'OK'}
"""
)

# KEYS: meta, log, the new list, the old list. ARGV: epoch, position, a or b, number of pieces, feature level, the name of
# the attempt.
SNAPSHOT_DONE = (
    _OWNER
    + """
local position, level, attempt = tonumber(ARGV[2]), ARGV[5], ARGV[6]
if get('writing') ~= attempt or redis.call('LLEN', KEYS[3]) ~= tonumber(ARGV[4]) then return {'LATE'} end
redis.call('HSET', meta, 'snapshot', ARGV[3], 'snapshot_position', ARGV[2], 'writing', '')
redis.call('UNLINK', KEYS[4])
if position > number('base') then
  redis.call('LTRIM', KEYS[2], string.format('%.0f', position - number('base')), -1)
  redis.call('HSET', meta, 'base', ARGV[2])
end
if position > number('last') then redis.call('HSET', meta, 'last', ARGV[2]) end
"""
    + _RAISE_FORMAT
)

# ARGV: what is missing. Answers OK.
MISSING = (
    _META
    + _FORMAT
    + """
redis.call('HSET', meta, 'format', tostring(format), 'missing', ARGV[1])
return {'OK'}
"""
)

# KEYS: meta, log. What is missing is given up; a log that is gone as a whole, too. Answers OK, what was missing, and how many
# records were in the log that is gone.
ACCEPT = (
    _META
    + _FORMAT
    + """
local before, gone = get('missing') or '', number('last') - number('base')
if redis.call('LLEN', KEYS[2]) > 0 then gone = 0 end
redis.call('HSET', meta, 'format', tostring(format), 'missing', '',
  'last', string.format('%.0f', number('last') - gone))
if gone > 0 then redis.call('HSET', meta, 'commit', '') end
return {'OK', before, string.format('%.0f', gone)}
"""
)
