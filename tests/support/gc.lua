--- A busted helper: a collector in a hurry, so that what is held too loosely shows. A new cycle
--- begins as soon as one ends, and some tens of kilobytes of garbage are a whole cycle.
collectgarbage("incremental")
collectgarbage("setpause", 0)
collectgarbage("setstepmul", 100)
