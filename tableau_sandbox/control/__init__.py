"""Faults on demand: make a sandbox misbehave as servers and networks do.

Faults of calls. `method` and `path` select the calls ("*" and "**" match any; a path is relative to
/api/VERSION/, and "*" or a name in braces matches one part of it). `nth` is the first call that is
hit from now on, `times` the number of calls that are hit (null: all, until the fault is cleared):
  {"kind": "refuse", "status": 429, "retry_after": 3}  or 401, 500, 503, 504; has no effect
  {"kind": "drop", "when": "before"}                   or "after" the call has taken effect
  {"kind": "delay", "seconds": 2}                      takes effect at once, answers late
  {"kind": "throttle", "bytes_per_second": 100000}     limits how fast the body is read
  {"kind": "expire_sessions", "user": "alice"}         just before the call; null: all users
  {"kind": "cut", "bytes": 20}                         the answer ends as if it were complete

Faults of queries by VizQL Data Service, which is at the path vizql-data-service/query-datasource:
  {"kind": "break_rows"}                               an error after the first row, status 200
  {"kind": "hide_rows", "rows": 2}                     rows that the user may not see; all queries
  {"kind": "stale_rows"}                               the data before their next change

Faults of jobs. `nth` and `times` count jobs, and `job_kind` is the kind shown in lists of jobs:
  {"kind": "fail_job", "notes": "Out of memory."}      or null: it fails without notes
  {"kind": "slow_job", "seconds": 60}                  additional time in progress
  {"kind": "hold_jobs"}                                jobs stay queued until it is cleared
  {"kind": "reorder_jobs", "order": "newest"}          or "random" instead of oldest first

A fault that is used up stays listed, with the number of times that it has `fired`. The clock can be
advanced; sessions, uploads and jobs use it.

In tests: sandbox.control.add(Refuse(status=429, retry_after=3, method="PUT", nth=2)).fired
and sandbox.advance(60), held_jobs(), wait_until_idle(), wait_until_running(), quirks(replace=...)
With --control, over HTTP, from this machine only (404003 without it):
  GET /control            the time of the clock, and all faults
  POST /control/faults    adds a fault as above (Content-Type: application/json)
  DELETE /control/faults  clears all faults; /control/faults/NUMBER clears one
  POST /control/clock     {"advance": 3600}
"""
