package redisstreams

import "github.com/redis/go-redis/v9"

// scripts are the steps that must be atomic. Each works on keys of one topic, which
// share a Cluster slot. They are sent by hash, and in full when the server does not
// know them (after a restart).
//
// A group's parked messages belong to one reserved consumer, whose pending list is
// the truth; the sorted set beside it only says when each is due. A message is in the
// set because it is in the list, never the other way round: whatever is lost of the
// set is put back by adopt.
type scripts struct {
	park, unpark, adopt, claim, renew, beat, leave, trim, inspect *redis.Script
}

func newScripts() scripts {
	return scripts{
		park:    redis.NewScript(luaNow + luaPark),
		unpark:  redis.NewScript(luaNow + luaUnpark),
		adopt:   redis.NewScript(luaNow + luaFailed + luaAdopt),
		claim:   redis.NewScript(luaFields + luaClaim),
		renew:   redis.NewScript(luaRenew),
		beat:    redis.NewScript(luaNow + luaFailed + luaFields + luaBeat),
		leave:   redis.NewScript(luaLeave),
		trim:    redis.NewScript(luaNow + luaFields + luaTrim),
		inspect: redis.NewScript(luaNow + luaFields + luaInspect),
	}
}

// The server's clock in milliseconds: members' clocks are never compared.
const luaNow = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`

// A command that the server refuses because its memory is used up must not take the
// rest of a script with it: what comes after may free some.
const luaFailed = `
local function failed(answer) return type(answer) == 'table' and answer.err ~= nil end
`

// XINFO answers are flat lists of names and values, and later servers add names.
const luaFields = `
local function fields(list)
  local f = {}
  for i = 1, #list, 2 do f[list[i]] = list[i + 1] end
  return f
end
`

// KEYS stream, due · ARGV group, owner, parking name, then id, counter, wait in ms.
// Parks what owner still owns; returns the ids that it does not.
const luaPark = `
local lost = {}
for i = 4, #ARGV, 3 do
  local id = ARGV[i]
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)
  if #p == 1 and p[1][2] == ARGV[2] then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, id, 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
    redis.call('ZADD', KEYS[2], now + ARGV[i + 2], id)
  else
    lost[#lost + 1] = id
  end
end
return lost
`

// KEYS stream, due · ARGV group, new owner, parking name, most.
// Hands out parked messages that are due; returns {{id, fields, counter}...}, how many
// of them the stream no longer had, and ms until the next is due (-1: none).
const luaUnpark = `
local out, gone = {}, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[4])) do
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)
  if #p == 1 and p[1][2] == ARGV[3] then
    local m = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id)
    if m[1] then out[#out + 1] = {id, m[1][2], p[1][4] + 1} else gone = gone + 1 end
  end
  redis.call('ZREM', KEYS[2], id)
end
local wait = -1
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if first[2] then wait = math.max(0, first[2] - now) end
return {out, gone, wait}
`

// KEYS stream, due · ARGV group, parking name, start, most.
// Puts parked messages that have no due time on the schedule, due now. Returns how
// many, and the last id looked at (” at the end of the list).
const luaAdopt = `
local found, last = 0, ''
local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], '+', ARGV[4], ARGV[2])
for _, e in ipairs(p) do
  if not redis.call('ZSCORE', KEYS[2], e[1]) then
    if failed(redis.pcall('ZADD', KEYS[2], now, e[1])) then return {found, last} end
    found = found + 1
  end
  last = e[1]
end
if #p < tonumber(ARGV[4]) then last = '' end
return {found, last}
`

// KEYS stream · ARGV group, new owner, parking name, idle ms, most.
// Takes over what members left that have been silent for that long. It asks consumer
// by consumer, so neither parked messages nor those of a busy live member can hide a
// dead one's, and needs no cursor: what it took is no longer there next time.
const luaClaim = `
local out, gone, left = {}, 0, tonumber(ARGV[5])
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local f = fields(c)
  if left > 0 and f.pending > 0 and f.name ~= ARGV[2] and f.name ~= ARGV[3] then
    for _, p in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[4], '-', '+', left, f.name)) do
      local m = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[4], p[1])
      if m[1] then
        out[#out + 1] = {p[1], m[1][2], p[4] + 1}
        left = left - 1
      else
        gone = gone + 1
      end
    end
  end
end
return {out, gone, -1}
`

// KEYS stream · ARGV group, owner, ids. Restarts the idle time of what owner still
// owns; returns the ids that it does not.
const luaRenew = `
local lost = {}
for i = 3, #ARGV do
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  if #p == 1 and p[1][2] == ARGV[2] then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
`

// KEYS stream, members · ARGV group, name, parking name, tags, stale ms.
// Notes that the member lives and which tags it wants; removes the names of members
// that neither live nor hold a message. Returns 1 when live members want different tags.
const luaBeat = `
if failed(redis.pcall('HSET', KEYS[2], ARGV[2], now .. ' ' .. ARGV[4])) then return 0 end
local mixed = 0
local live = {}
local beats = redis.call('HGETALL', KEYS[2])
for i = 1, #beats, 2 do
  local at, tags = string.match(beats[i + 1], '^(%d+) (.*)$')
  if at and now - at < tonumber(ARGV[5]) then
    live[beats[i]] = true
    if tags ~= ARGV[4] then mixed = 1 end
  else
    redis.call('HDEL', KEYS[2], beats[i])
  end
end
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local f = fields(c)
  if f.pending == 0 and not live[f.name] and f.name ~= ARGV[3] then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], f.name)
  end
end
return mixed
`

// KEYS stream, members · ARGV group, name. Removes the member's name unless messages
// still hang on it: those would be lost with it.
const luaLeave = `
redis.call('HDEL', KEYS[2], ARGV[2])
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
`

// KEYS stream, lock · ARGV lock ms, retention ms, greatest length, most per call.
// Trims what every group has finished and what is older than the retention, then cuts
// at the greatest length. Returns both numbers and the length after. Without memory
// for the lock it trims all the same: that is what gives memory back.
const luaTrim = `
if not redis.pcall('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) then return {0, 0, -1} end
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0, 0} end
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local cutms, cutseq = now - ARGV[2], 0
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
local behind = 0
if #groups > 0 then
  for _, g in ipairs(groups) do
    local f = fields(g)
    local id = f['last-delivered-id']
    if f.pending > 0 then id = redis.call('XPENDING', KEYS[1], f.name)[2] end
    local ms, seq = parts(id)
    if ms < cutms or (ms == cutms and seq < cutseq) then cutms, cutseq = ms, seq end
  end
  if cutms > 0 then
    behind = redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f-%.0f', cutms, cutseq), 'LIMIT', ARGV[4])
  end
end
local fuse = redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[3], 'LIMIT', ARGV[4])
return {behind, fuse, redis.call('XLEN', KEYS[1])}
`

// KEYS stream, members · ARGV group, parking name, fresh ms, most to count.
// Returns now, unread, pending, parked, id of the oldest unfinished
// message (” none) and the live members; an empty list when there is no such group.
const luaInspect = `
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local group
for _, g in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local f = fields(g)
  if f.name == ARGV[1] then group = f end
end
if not group then return {} end
local oldest = ''
local unread = group.lag
local next = redis.call('XRANGE', KEYS[1], '(' .. group['last-delivered-id'], '+', 'COUNT', unread and 1 or ARGV[4])
if next[1] then oldest = next[1][1] else unread = 0 end
if not unread then unread = #next end
local sum = redis.call('XPENDING', KEYS[1], ARGV[1])
local parked = 0
if sum[1] > 0 then
  oldest = sum[2]
  for _, c in ipairs(sum[4]) do
    if c[1] == ARGV[2] then parked = tonumber(c[2]) end
  end
end
local live = {}
local beats = redis.call('HGETALL', KEYS[2])
for i = 1, #beats, 2 do
  local at = string.match(beats[i + 1], '^(%d+) ')
  if at and now - at < tonumber(ARGV[3]) then live[#live + 1] = beats[i] end
end
return {now, math.min(unread, redis.call('XLEN', KEYS[1])), sum[1], parked, oldest, live}
`
