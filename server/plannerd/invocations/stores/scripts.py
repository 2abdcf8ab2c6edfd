"""What Redis and Valkey do in one go, as scripts: each one is a single round trip, and happens whole or not at all.

`KEYS[1]` is the invocation, a hash with its version in the field `v`; `KEYS[2]` is the claim on it. Every script may be
sent again when its answer was lost.
"""

from __future__ import annotations

from typing import Final

GET: Final = """
local version = redis.call('HGET', KEYS[1], 'v')
if not version then return 0 end
if redis.call('HEXISTS', KEYS[1], 'ended') == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if version == ARGV[1] then return 1 end
return redis.call('HGETALL', KEYS[1])
"""
"""ARGV: the version that is known (may be empty), milliseconds to live. 0: nothing there; 1: still that version."""

CHECK: Final = "return 1"
"""Does nothing, to see whether the server answers."""

PUT: Final = """
local version = redis.call('HGET', KEYS[1], 'v')
if version == ARGV[2] then return 1 end
if (version or '') ~= ARGV[1] then return 0 end
local owner = redis.call('GET', KEYS[2])
if owner and owner ~= ARGV[6] then return -math.max(1, redis.call('PTTL', KEYS[2])) end
if ARGV[4] == 'end' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'v', ARGV[2])
if ARGV[4] == 'anew' then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field ~= 'v' then redis.call('HDEL', KEYS[1], field) end
  end
end
local first_gone = 7 + 2 * tonumber(ARGV[5])
for i = 7, first_gone - 1, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = first_gone, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('DEL', KEYS[2])
return 1
"""
"""ARGV: the version that is expected (empty: nothing there), the new one, milliseconds to live, what becomes of the
fields that are there (`change`, `anew` or `end`), how many fields there are, whose claim the writer has (empty: none),
the fields with their values, the fields to remove. 1: written; 0: something else is there; less: somebody else's claim
is in the way, for so many milliseconds.

A server without room refuses a script at its first command that needs some, and from the first write on refuses
nothing. So HSET comes first; only an end frees room before."""

DROP: Final = """
if redis.call('HGET', KEYS[1], 'v') == ARGV[1] then redis.call('DEL', KEYS[1], KEYS[2]) end
return 1
"""
"""ARGV: the version that is expected."""

CLAIM: Final = """
if redis.call('HGET', KEYS[1], 'v') ~= ARGV[1] then return -1 end
local owner = redis.call('GET', KEYS[2])
if owner and owner ~= ARGV[2] then return math.max(1, redis.call('PTTL', KEYS[2])) end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 0
"""
"""ARGV: the version that is expected, who claims, milliseconds. 0: claimed; -1: outdated; else milliseconds to wait."""

RENEW: Final = """
if redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
"""
"""ARGV: who claimed, milliseconds of the claim, and of the invocation, on which somebody works."""

RELEASE: Final = """
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 1
"""
"""ARGV: who claimed."""

ADMIT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
"""`KEYS[1]` is the set of a caller's invocations. ARGV: the id of one, milliseconds that it counts, how many there may
be. 1: it is among them now; 0: there are as many."""

LEAVE: Final = """
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
"""
"""`KEYS[1]` as before. ARGV: the id of one that was ended."""
