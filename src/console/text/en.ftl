nav-overview = Overview
nav-calls = Calls
nav-tools = Tools
frame-skip = Skip to the content
frame-navigation = Pages
frame-sign-in = Sign in
frame-sign-out = Sign out
frame-anonymous = Not signed in
frame-reads-own = sees its own calls
sign-in-title = Sign in
sign-in-lead = With an API key or a token of this gateway.
sign-in-key = Key or token
sign-in-help = The key is not kept: the browser gets a session of at most eight hours.
sign-in-button = Sign in
error-not-found = There is no such page
error-denied = This is not allowed
error-failed = This did not work
error-alternatives = Did you mean
error-request = Request
error-back = To the overview
time-seconds = { $n } s ago
time-minutes = { $n } min ago
time-hours = { $n } h ago
time-days = { $n } d ago
filter-any = any
filter-search = Search
filter-danger = Danger
filter-apply = Apply
tool-name = Tool
tool-description = Description
tool-source = Source
tool-category = Category
tool-state = State
tool-dangerous = dangerous
tool-safe = not dangerous
tool-sandboxed = sandboxed
tool-idempotent = idempotent
tool-flagged = flagged
tool-not-usable = not usable
tool-usable = usable now
tool-output = Output schema
tool-limits = Limits and price
tool-flags = Its texts look like an attempt to instruct a model:
tool-last-calls = Last calls
tools-none = No tool fits these filters.
tools-all = Show all tools
paging-label = Pages of the list
paging-back = Back
paging-next = Next
paging-at = { $at } of { $pages }
schema-title = Arguments
schema-empty = No named arguments.
schema-name = Name
schema-type = Type
schema-rule = Rule
schema-default = Default
schema-required = required
schema-more = { $n } more rows are not shown; /tools/…/schema has all.
limit-rate = Rate
limit-per-minute = { $n } a minute
limit-timeout = Timeout
limit-memory = Memory
limit-output = Output
limit-text = Tokens of text
limit-price = Price of a call
limit-roles = Roles
limit-circuit = Circuit
try-title = Try it
try-no-arguments = It takes no arguments.
try-as-json = Arguments as JSON
try-json-label = JSON object
try-json-help = Replaces the fields above.
try-needs-json = Write it as JSON.
try-unset = not set
try-run = Run
try-dry = Dry run
try-dangerous = This tool is dangerous: a dry run makes every check, and runs nothing.
reply-success = Done
reply-would-run = Every check passed; nothing was run
reply-failed = Not done
reply-tokens = { $n ->
    [one] one token
   *[other] { $n } tokens
}
reply-picture = Picture that the tool returned
reply-text = Text
reply-json = JSON
reply-cut = The rest is not shown here.
reply-call-id = Call
snippets-title = The same call elsewhere
copy = Copy
copied = Copied
path-label = The path of the call
path-at = at { $stage }
path-no-reason = Its text could quote arguments or output, so it is not kept.
path-stopped = ended here
path-passed = passed
path-unreached = not reached
path-rate = { $left } of { $limit } left
path-policy = set { $version }
path-policy-cached = set { $version }, cached
path-attempts = { $n } attempts
path-total = { $took } in the stages
calls-own = These are your own.
calls-tenant = Of the tenant { $tenant }.
calls-all = Of all tenants.
calls-none = No call in memory fits.
calls-try = Try a tool
calls-none-of-tool = None in memory.
calls-older = Older
calls-memory = The last 2000 calls are in memory; older ones are in the audit trail: sekisho audit search
call-time = Time
call-outcome = Outcome
call-caller = Caller
call-duration = Duration
call-cost = Cost
call-code = Error code
call-dry-run = dry run
call-title = Call of { $tool }
call-tenant = Tenant
call-via = Came over
call-depth = Depth
call-tokens = Tokens
call-request = Request
call-id = Call
call-no-arguments = Arguments and outputs are not kept.
call-tool = The tool
call-same-tool = Other calls of it
status-success = success
status-error = error
status-refused = refused
status-cancelled = cancelled
live-new = new
live-live = live
live-lost = connection lost; connecting again
overview-window = Of the last { $minutes } minutes, from the calls in memory.
overview-refusals = Refusals and failures by reason
overview-degraded = Needs attention
overview-slowest = Slowest tools
overview-most-refused = Most refused tools
overview-none-refused = None.
overview-none-degraded = Everything works.
overview-nothing = Nothing yet.
figure-calls = Calls
figure-refused = Refused
figure-times = p50 / p95
figure-spent = Spent
tools-state = { $count ->
    [one] One tool
   *[other] { $count } tools
}, of which you may use { $usable }.
tools-count = { $count ->
    [one] One tool
   *[other] { $count } tools
}
try-problems = { $n ->
    [one] One argument is wrong:
   *[other] { $n } arguments are wrong:
}
calls-state = { $count ->
    [one] One call
   *[other] { $count } calls
} in memory, { $refused } refused.
overview-state = { $degraded ->
    [0] Everything works
    [one] One part needs attention
   *[other] { $degraded } parts need attention
}; { $refused } of { $count } calls were refused.
overview-notes = { $n ->
    [one] One note on the settings
   *[other] { $n } notes on the settings
}
