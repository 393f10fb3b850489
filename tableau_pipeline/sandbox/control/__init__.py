"""Faults on demand: a sandbox that misbehaves as servers and networks do.

Faults of calls; `method` and `path` say which ("*" and "**": any; a path is written below
/api/VERSION/, "*" or a name in braces stands for one part of it), `nth` which of them is the first
to be hit from now on, `times` how many are hit (null: all, until it is cleared):
  {"kind": "refuse", "status": 429, "retry_after": 3}  or 401, 500, 503, 504; nothing is done
  {"kind": "drop", "when": "before"}                   or "after" the work is done
  {"kind": "delay", "seconds": 2}                      the work is done at once, the answer is late
  {"kind": "throttle", "bytes_per_second": 100000}     how fast the body of the call is read
  {"kind": "expire_sessions", "user": "alice"}         just before the call; null: everybody's

Faults of jobs; `nth` and `times` count jobs, and `job_kind` is as lists of jobs call it:
  {"kind": "fail_job", "notes": "Out of memory."}      or null: it fails without a word
  {"kind": "slow_job", "seconds": 60}                  that much longer in progress
  {"kind": "hold_jobs"}                                they stay queued until it is cleared
  {"kind": "reorder_jobs", "order": "newest"}          or "random" instead of oldest first

A fault that is used up stays listed, with the number of times that it has `fired`. The clock can be
advanced: sessions, uploads and jobs follow it.

In tests: sandbox.control.add(Refuse(status=429, retry_after=3, method="PUT", nth=2)).fired
and sandbox.advance(60), held_jobs(), wait_until_idle(), wait_until_running(), switch(replace=...)
With --control, over HTTP, from this machine only (404003 without it):
  GET /control            what the clock says, and all faults
  POST /control/faults    a fault as above (Content-Type: application/json)
  DELETE /control/faults  clears all of them; /control/faults/NUMBER one
  POST /control/clock     {"advance": 3600}
"""
