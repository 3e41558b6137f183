--- A busted helper: a collector in a hurry, so that what is held too loosely shows. A new cycle
--- begins as soon as one ends. NEAP_GC says how fast it is:
---
---   often    a cycle for some tens of kilobytes of garbage: about as fast as without
---   always   about every allocation is a cycle: a hundred times slower
local WORK = { often = 60, always = 100 }

collectgarbage("incremental")
collectgarbage("setpause", 0)
collectgarbage("setstepmul", assert(WORK[os.getenv("NEAP_GC") or "always"], "NEAP_GC"))
