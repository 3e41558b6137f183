# A log's length costs no memory: what is held are the calls of two minutes, however many come.
# LINES_MORE=10000000 for a longer one.
. "$(dirname "$0")/../hosts/support.sh"

neap=${NEAP_BIN:?}
policy plain 'trip = { failure_rate = 0.5, minimum_calls = 20 }' "$dir"
export ASAN_OPTIONS=quarantine_size_mb=1:detect_leaks=0
$lua - "$neap" "$dir" "${LINES_MORE:-600000}" <<'LUA'
local neap, dir, more = arg[1], arg[2], tonumber(arg[3])
local pipe = assert(io.popen(("echo $$ >%s/pid; exec '%s' replay - --policy %s/plain.lua >%s/out")
  :format(dir, neap, dir, dir), "w"))
pipe:setvbuf("full", 65536)

--- What the process has had at most, in KB.
local function peak()
  pipe:flush() -- all but what is in the pipe has been read
  local pid = io.open(dir .. "/pid"):read "n"
  return tonumber(io.open(("/proc/%d/status"):format(pid)):read("a"):match "VmHWM:%s*(%d+)")
end

local at_ms, made = 1764590400000, 0
local function lines(count)
  local block = {}
  for i = 1, count do
    at_ms, made = at_ms + 1, made + 1
    local is_bad = made % 100000 > 95000
    block[#block + 1] = ("%d,%d,%d\n"):format(at_ms, is_bad and 503 or 200, is_bad and 500 or 12)
    if #block == 1000 or i == count then
      pipe:write(table.concat(block))
      block = {}
    end
  end
end

pipe:write "time,status,duration_ms\n"
lines(300000) -- five minutes: it holds two of them
local before = peak()
lines(more)
local after = peak()
assert(pipe:close())
assert(after < before + 1024, ("%d KB after 300,000 lines, %d KB after %d more"):format(before, after,
  more))
if os.getenv "SHOW" then print(before, after) end
local said = io.open(dir .. "/out"):read "a"
assert(said:find((tostring(300000 + more):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  :gsub("^,", "")) .. " calls", 1, true), said)
LUA
