--- A busted helper: the most aggressive collector there is, so that whatever holds an object too loosely shows.
--- A new cycle begins as soon as one ends, and every allocation pays for a thousand times as much marking and sweeping.
collectgarbage("incremental")
collectgarbage("setpause", 0)
collectgarbage("setstepmul", 1000)
