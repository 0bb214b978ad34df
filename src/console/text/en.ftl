nav-overview = Overview
nav-calls = Calls
nav-approvals = Approvals
nav-tools = Tools
frame-skip = Skip to the content
frame-navigation = Pages
frame-sign-in = Sign in
frame-sign-out = Sign out
frame-anonymous = Not signed in
frame-reads-own = sees its own calls
figures-title = Figures
figures-refusals = Refusals by stage
figures-from = Time (UTC)
figures-compare = beside the day before
figures-before = day before
figures-difference = Difference
figures-none = No calls in this time.
costs-others = Others
costs-by-tool = Caller and tool
overview-as-table = As a table
overview-budgets = Budgets of today
overview-tokens = { $n } tokens
overview-used = used
overview-load = Load
load-running = Calls running
load-sandbox = Sandboxed runs
load-queued = Sandboxed runs waiting
load-memory = Memory of the sandbox
advice-circuit = It is tried again by itself. Look at its last calls, and at the service itself.
advice-mcp = It is connected again by itself. Look at the server's own log, or sign in to it.
advice-openapi = Look at the address of the document, and whether it is a valid one.
advice-configuration = The one before stays in force. Mend the file; it is read again by itself.
advice-lock = Restore the file, or pin the tools again: sekisho lock
advice-quarantine = Review the differences and approve them: sekisho lock diff
advice-prices = Set a price of the model, or it is refused under a budget of money.
advice-sandbox = Set the interpreter up: sekisho sandbox prepare
advice-storage = Look at the free space and the rights of the state directory, or at the database.
advice-other = The log says more.
nav-map = Map
map-state = { $count ->
    [one] One call
   *[other] { $count } calls
} in the last five minutes, { $failed } failed; { $broken ->
    [0] all servers work
    [one] one server does not work, or works in part
   *[other] { $broken } servers do not work, or work in part
}.
map-client = Client
map-server = Server
map-per-minute = calls a minute
map-failed = failed
map-health = Health
map-more = and { $n } more
nav-servers = Servers
servers-state = { $count ->
    [one] One server or collection
   *[other] { $count } servers and collections
}, { $down ->
    [0] all well
    [one] one needs attention
   *[other] { $down } need attention
}.
servers-add = Add a server
servers-differences = Differences from the lock
servers-none = No MCP server and no OpenAPI collection, or none with a tool for you.
server-name = Name
server-kind = Kind
server-since = Since
server-reason = Reason
server-mcp = MCP server
server-openapi = OpenAPI collection
server-works = works
server-degraded = works in part
server-connecting = connecting
server-needs-sign-in = needs a sign-in
server-down = down
server-disabled = switched off
server-quarantined = { $n } quarantined
server-reconnect = Reconnect now
server-reconnecting = It is being connected again.
server-sign-in = Sign in
server-continue = The sign-in is open for some minutes:
server-open-sign-in = go on at the authorization server
server-address = Address
server-defined = Defined
server-registered = over HTTP
server-configured = in the configuration
server-layers = Layers of the sandbox
server-remove = Remove
server-remove-help = { $n ->
    [0] It has no tool that is offered.
    [one] Its tool is no longer offered.
   *[other] Its { $n } tools are no longer offered.
} Calls that run on it end. It stays removed after a restart; the audit trail says who removed it.
server-remove-configured = The configuration file defines it, so it can be removed only there.
server-removed = It was removed, and its tools with it.
server-waiting = Waiting for approval
connections-title = Connections of the program
connection-host = Host
connection-allowed = Allowed
connection-refused = Refused
connection-datagrams = Datagrams refused
fidelity-title = Operations of the document
fidelity-operations = Operations
fidelity-works = Work as described
fidelity-lost = Not offered
fidelity-approximated = Differ from the document
fidelity-credentials = Without their credentials
list-more = { $n } more are not shown; the API has all.
add-state = A test connects or reads, and offers nothing.
add-url = Address
add-headers = Headers
add-headers-help = One header a line. A value is the name of a secret of the configuration (mcp.secrets), never a secret.
add-document-url = Address of the document
add-document = Or the document itself
add-document-help = The host must be allowed (outbound.openapi_allowed_domains).
add-base-url = Address of the service, if not the document's
add-test = Test
add-add = Add
add-program = Program on this machine
add-program-elsewhere = Programs are added by the user of the gateway's machine: open the console with sekisho console, or run there
add-program-help = One argument, variable or call a line. It is run once in its sandbox, with the calls, and not added. What it was refused is listed.
add-program-works = It ran in its sandbox and lists its tools. Nothing was added yet. This is the smallest profile that it needed.
add-command = Program
add-arguments = Arguments
add-variables = Variables
add-calls = Calls of the run
add-observe = Run once
add-server-works = It was connected, and lists its tools. Nothing was added yet.
add-document-read = The document was read. Nothing was added yet.
lock-state = { $count ->
    [0] Every tool is as it was approved.
    [one] One tool differs from what was approved.
   *[other] { $count } tools differ from what was approved.
}
lock-none = No lock applies: tools are offered as their sources describe them.
lock-same = Nothing differs.
lock-not-compared = Not compared:
lock-approve = Approve the chosen ones
lock-approved = Approved, and written to the lock.
lock-help = What is approved is what this page shows: a tool that has changed since is refused.
lock-added = new
lock-removed = removed
lock-changed = changed
lock-renamed = renamed, before:
lock-quarantined = refused until approved
lock-place = Place
lock-before = Approved
lock-after = Now
nav-policies = Policies
nav-flow = Flow of values
flow-off = No values are kept, and no call is in question (policy.flow: off).
flow-observed = { $asked } of { $calls } calls with effects would have needed a person (policy.flow: observe).
flow-enforced = { $asked } of { $calls } calls with effects needed a person, or were refused (policy.flow: enforce).
flow-since = Since
flow-none = No call was in question.
flow-help = The most frequent first. Equal questions of a session are one. The last call is an example, while it is kept.
flow-count = Questions
flow-argument = Argument
flow-whole-call = the call as a whole
flow-state = Origin
flow-from = In the result of
flow-last-call = Last call
policies-state = { $rules ->
    [one] One rule
   *[other] { $rules } rules
} in force, set { $version }.
policies-rules = Rules
policies-none = No rule of your own: the checks of each tool decide alone.
policies-rule = Rule
policies-file = File
policies-roles = Roles that may call dangerous tools
policies-decisions = Decisions
policies-memory = About the calls in memory.
policies-decision = Decision
policies-reason = Reason
policies-allowed = permitted
policies-undecided = No call in memory reached the policies.
explain-title = Explain a call
explain-help = Nothing is run, and nothing is taken of any limit.
explain-caller = Id of the caller
explain-caller-help = Empty: a caller without credentials.
explain-roles = Roles
explain-roles-help = Separated by commas.
explain-arguments = Arguments
explain-result = Example of a result
explain-result-help = Empty: none. Shows what the rules for results would change in it.
explain-button = Explain
explain-passes = Every stage would let it through.
explain-stops = It would be stopped at { $stage }.
path-would-stop = would stop it
history-title = Audit trail
history-state = From the audit trail, the newest first. Times are in UTC.
history-recent = All calls
history-none = No call of the trail fits.
history-searched = Searched back to { $time }.
history-end = There are no older ones.
history-since = From (UTC)
history-until = Until (UTC)
history-lacks = From the audit trail, which has neither the times of the stages nor the text of a refusal.
call-stage = Ended at
call-attempts = Attempts
call-guards = Guards that found something
call-policy = Policy set
call-trace = Trace
call-line = Line of the trail
call-together = Calls of this line
nav-limits = Limits
limits-state = { $empty ->
    [0] No limit is used up
    [one] One limit is used up
   *[other] { $empty } limits are used up
}; { $count } in use.
limits-rates = Rate limits
limits-full = Nothing is used of any limit.
limits-left = Left
limits-used = Used
limits-full-in = Full again in
limits-all-tools = all tools
limits-all-callers = all callers
limits-held = Held
limits-limit = Limit
limits-general = In force
limits-tenant-rate = A tenant, all tools
limits-caller-rate = A caller, all tools
limits-mcp-rate = A tool of an MCP server
limits-concurrent = Calls at once
limits-concurrent-tool = Calls of a tool at once
limits-queue = Calls that may wait
nav-configuration = Configuration
configuration-state = { $count } settings, { $set } of them set.
configuration-check = Check a change
configuration-text = Changed configuration
configuration-help = Empty: the file as it is now. Nothing is taken over; whether a secret has changed is not shown.
configuration-run-check = Check
configuration-valid = { $count ->
    [0] It is valid, and changes nothing.
    [one] It is valid, and changes one setting.
   *[other] It is valid, and changes { $count } settings.
}
configuration-invalid = It would not be taken over:
configuration-waiting = A changed configuration waits for SIGHUP, since it opens what the one in force keeps closed:
configuration-opens = Found in its file, this would wait for SIGHUP, since it opens:
configuration-opening = What it opens
configuration-restart = takes effect at the next start
configuration-changes = Settings that would change
configuration-key = Setting
configuration-value = Value
configuration-before = In force
configuration-after = Afterwards
configuration-settings = In force
configuration-none = No setting fits.
configuration-secret = secret
configuration-line = line { $n }
source-default = default
source-file = file
source-environment = environment
source-change = change
nav-changes = Changes
change-lead = Changes of the configuration while the gateway runs, over its file. Each is looked at before it is applied, and can be undone.
change-none = Nobody has proposed a change.
change-id = Change
change-comment = Comment
change-proposed-by = Proposed by
change-proposed-at = Proposed
change-decided-by = Decided by
change-changed-at = Changed
change-patch = Settings
change-help = A JSON merge patch: an object is merged, a list is replaced, null removes a setting. Nothing is applied yet.
change-propose = Propose a change
change-apply = Apply
change-undo = Undo
change-proposed = proposed
change-applied = applied
change-undone = undone
change-opening = It opens what is closed now. Confirm each of these settings:
change-opens = I confirm
change-trial = Tried on the latest calls
change-tried = { $count ->
    [one] One call was tried.
   *[other] { $count } calls were tried.
}
change-refused = { $count ->
    [one] One call would now be refused:
   *[other] { $count } calls would now be refused:
}
change-found = { $count ->
    [one] One call of a hidden tool would find it:
   *[other] { $count } calls of hidden tools would find them:
}
change-calls = Calls
change-not-known = The index does not tell the effect of:
sign-in-title = Sign in
sign-in-lead = With an API key or a token of this gateway.
sign-in-key = Key or token
sign-in-help = The key is not kept: the browser gets a session of at most eight hours. On the machine of the gateway no key is needed: the command “sekisho console” prints a link.
sign-in-button = Sign in
sign-in-provider = Sign in at { $issuer }
upstream-title = Sign in to { $source }
upstream-for = Calls of { $caller } (tenant { $tenant }) to { $source } are made as the user who signs in there.
upstream-warning = Go on only if you are { $caller } and asked for this yourself: otherwise somebody else would act there as you.
upstream-code = One-time code
upstream-code-help = It came with the address of this page, for you alone.
upstream-button = Go on
upstream-other = This browser is signed in as { $caller }, and this sign-in is somebody else's. Close this page.
upstream-console = Or sign in to the console as { $caller } first
upstream-ready = The tokens will be kept for { $caller }.
upstream-continue = Sign in at { $host }
upstream-done-title = Signed in
credential-title = Your credential for { $source }
credential-for = Calls of { $caller } (tenant { $tenant }) to { $source } are made with the credential that is stored here.
credential-kind = Sent as
credential-key = Key
credential-basic = User name and password
credential-header = The whole header
credential-username = User name, for a password
credential-secret = Key, password or header
credential-secret-help = It is stored encrypted, and nobody can read it here.
credential-expires = Not sent after (optional)
credential-store = Store
upstream-done = { $caller } is signed in to { $source }. Send the call again; this page can be closed.
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
time-in-seconds = in { $n } s
time-in-minutes = in { $n } min
time-in-hours = in { $n } h
time-in-days = in { $n } d
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
limit-lock = Lock
lock-state-pinned = as approved
lock-state-unpinned = needs no approval
lock-state-none = no lock applies
limit-circuit = Circuit
try-title = Try it
try-no-arguments = It takes no arguments.
try-as-json = As JSON
try-json-label = JSON object
try-json-help = Replaces the fields above.
try-needs-json = Write it as JSON.
try-unset = not set
try-more = Add an entry
try-file-kept = { $size } bytes are attached; choose a file to replace them.
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
path-no-reason = Its text may quote arguments or output: the page of the call has it, for the roles operator and admin.
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
calls-none = There is no call yet, or none that fits the filters.
calls-try = Try a tool
calls-none-of-tool = None in the index.
calls-older = Older
events-title = Events
events-state = Sign-ins, registrations, approvals, changes of keys, reloads: the latest first. Times are in UTC.
events-none = No event of the index fits.
event-kind = Event
event-success = Done
event-subject = About
event-detail = Detail
event-client = Client
calls-index = There are no older ones in the index; the audit trail may have some: sekisho audit search
calls-text = Id or text
calls-further = Further filters
calls-times = Time
calls-facets = Counts
calls-min-seconds = Seconds, at least
calls-min-cost = Cost in USD, at least
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
call-parent = Parent call
nested-title = { $n ->
    [one] It made one call
   *[other] It made { $n } calls
}
nested-others = { $n ->
    [one] One more is not shown; it is in the audit trail: sekisho audit search
   *[other] { $n } more are not shown; they are in the audit trail: sekisho audit search
}
call-tokens = Tokens
call-request = Request
call-id = Call
call-no-arguments = Arguments and outputs of this call are not kept (the setting recording.content keeps them), or not for your role.
call-content = Arguments and result
call-content-open = Open them
call-content-recorded = The audit trail records who opens them.
call-content-too-large = Too large to be kept.
call-arguments = Arguments
call-result = Result
call-try-again = Try again with these arguments
call-compare = Compare
call-compare-with = Compare with the call (its id)
call-compare-title = Two calls
call-compare-value = Value
call-compare-equal = Their arguments and results are equal.
call-compare-more = There are more differences.
call-tool = The tool
call-same-tool = Other calls of it
call-same-caller = Calls of the same caller
call-same-failure = Calls that ended alike
call-same-session = Calls of the same session
call-server = Server
call-key = Key
call-session = Session
call-upstream = Upstream
call-http-status = HTTP status
call-client = Client
call-arguments-digest = SHA-256 of the arguments
call-words = Why it failed
call-violations = Violated rules
call-next = Next
call-retry-after = The caller was asked to wait { $time }.
call-used-up = Who used it up
call-limit-rule = Rule of limits:
call-attempt = Attempt
call-after = After
call-rules = Rules that refused it
call-run = Run
call-program = SHA-256 of the program
call-approval = Approval
call-same-run = Calls of the same run
call-since-when = Since when, and for whom
next-check-name = Look for the name: there is none, or none that this caller may know. Its roles decide what it sees.
next-correct-arguments = Correct the request: the violated rules say where.
next-change-rule = Ask for what the rule requires, or change the rule of the policies and its case.
next-give-role = Give the caller the role or the scope, or add the tool to its key.
next-change-guard = Look at what the guard found, or change its rule in tools.guards.
next-send-credentials = Send a key or a token of this gateway.
next-sign-in = The caller signs in to the upstream, at Sign-ins.
next-decide = An approver decides; then the same call is sent with the approval's id.
next-ask-again = Ask for a new approval with the call as it is now.
next-raise-limit = Wait as long as it says, spread the calls, or raise the limit.
next-raise-budget = Wait for the next day, use cheaper tools, or raise the budget.
next-add-slots = Wait as long as it says, or raise the number of calls at once.
next-repair-upstream = Look at the upstream: it fails. Calls pass again by themselves once it answers.
next-give-credentials = Look at the credentials that the gateway sends to the upstream: it refuses them.
next-call-less-often = The upstream limits calls: set rate_limit of the tool below its limit.
next-raise-timeout = Look why it takes so long, or raise timeout_seconds of the tool.
next-read-words = Read what the tool says, and correct the arguments or the tool.
next-narrow-output = Ask for less, project the result, or raise the tool's limit.
next-correct-schema = The answer differs from the schema of outputs: correct the schema or the tool.
next-wait-and-repeat = Send it again in a moment.
next-check-outcome = It may have happened: look at its effect, then settle it.
next-read-log = The log of the gateway has the cause, by the id of the request.
failures-title = Failures
failures-state = { $count ->
    [0] No call failed or was refused.
    [one] One kind of failures and refusals, the most frequent first.
   *[other] { $count } kinds of failures and refusals, the most frequent first.
}
failures-none = No call of that time failed or was refused.
failures-by = Count by
failures-searched = Of the latest fifty thousand calls or so. Calls before this time were not looked at:
failure-value = Where
failure-failed = Failed, of all calls
failure-since = Since
failure-first-call = First of them
failure-last = Last
failure-last-success = Last success
failure-constant = no success since
server-failing = Tools that fail now
status-success = success
status-error = error
status-refused = refused
status-cancelled = cancelled
live-new = new
live-live = live
live-lost = connection lost; connecting again
overview-refusals = Refusals and failures by reason
overview-degraded = Needs attention
overview-slowest = Slowest tools
overview-most-refused = Most refused tools
overview-replicas = Replicas
replica-id = Id
replica-host = Host
replica-state = State
replica-live = live
replica-lost = lost
replica-version = Version
replica-heartbeat = Last heartbeat
replica-files = Configuration and policies
replica-same = as here
replica-other = others
replica-degraded = Does not work
overview-none-refused = None.
overview-none-degraded = Everything works.
overview-nothing = Nothing yet.
figure-refused = Refused
figure-times = p50 / p95 / p99
figure-spent = Spent
tools-state = { $count ->
    [one] One tool
   *[other] { $count } tools
}, of which you may use { $usable }.
tools-tokens = { $saved ->
    [0] A list of all takes a model about { $whole } tokens.
   *[other] A list of all takes a model about { $whole } tokens. With server.mcp.tools: auto it takes at most { $auto }, which saves { $saved }.
}
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
}, { $refused } refused.
overview-state = { $degraded ->
    [0] Everything works
    [one] One part needs attention
   *[other] { $degraded } parts need attention
}; { $refused } of { $count } calls were refused.
overview-notes = { $n ->
    [one] One note on the settings
   *[other] { $n } notes on the settings
}
nav-conversations = Conversations
nav-plans = Plans
nav-models = Models
nav-skills = Skills
nav-tenants = Tenants
nav-costs = Costs
nav-connect = Connect
export-label = As a file:
form-more = More settings
form-add = Add
form-save = Save
column-changed = Changed
column-created = Created
agent-name = Agent
agent-default = the default: { $name }
status-active = active
status-inactive = inactive
conversations-state = Yours alone: nobody else sees them here.
conversations-none = There is no conversation yet.
conversation-new = New conversation
conversation-title = Title
conversation-title-help = Without one, the first answer gives it.
conversation-workspace = Its runs have files of their own
conversation-has-files = with files
conversation-untitled = Untitled
conversation-manage = Rename, fork, deactivate or delete
conversation-rename = Rename
conversation-fork = Fork
conversation-activate = Activate
conversation-deactivate = Deactivate
conversation-delete = Delete
conversation-delete-confirm = Delete it with its runs and messages. This cannot be undone.
chat-label = Messages
chat-message = Message
chat-send = Send
chat-you = You
chat-agent = Agent
chat-empty = Nothing was said yet.
chat-earlier = Earlier messages
chat-later = Later messages
chat-picture = Picture that was sent
chat-file = A file
chat-incomplete = without an end
chat-thought = Thoughts
chat-answer = Answer
chat-receipt = The whole receipt
chat-no-receipt = The index has no record of it; the audit trail may have it.
chat-reload = Show what there is now
runs-background = Runs in the background
runs-title = Runs
run-number = No.
run-begun = Begun
run-ended = Ended
run-running = running
run-timed-out = timed out
run-queued = waiting
run-interrupted = interrupted
run-cancel = Cancel the run
timeline-title = Timeline
timeline-step = Step
timeline-after = After
timeline-time = Time
timeline-goes-on = goes on
timeline-others = { $n ->
    [one] One earlier step is not shown
   *[other] { $n } earlier steps are not shown
}
run-title = Run { $number }
run-steps = Steps
run-turn = Turn { $number }
run-unknown = no answer is known
run-thinking-hidden = Its provider does not show its thoughts.
run-models = Usage by agent and model
run-models-cost = Cost of models
run-tools-cost = Cost of tools
run-request = Request
run-compare-with = Compare with the run (its id)
run-compare-title = Two runs
run-compare-equal = Their steps are equal.
run-compare-partial = The first { $n } steps of each are compared.
run-first-difference = First difference: step { $number }
decision-title = This run waits for your decision
decision-skip = Skip it
decision-repeat = Send it again
decision-help = Skip it: the model is told that the call may have happened. Send it again: it may then have happened twice.
plans-none = There is no plan yet.
plan-new = New plan
plan-goal = Goal
plan-approve-first = Wait for approval before the first step
plan-begin = Begin
plan-waiting = waits for approval
plan-running = running
plan-paused = paused
plan-finished = finished
plan-impossible = not possible
plan-failed = failed
plan-cancelled = cancelled
plan-steps = Steps
plan-no-steps = The plan is being made.
plan-criteria = The goal is reached when:
plan-answer = Answer
plan-attempt = attempt { $n } of { $max }
plan-progress = { $done } of { $all } steps are done
plan-turns = Turns
plan-calls = Tool calls
plan-act-approve = Approve
plan-act-continue = Continue
plan-act-pause = Pause
plan-act-cancel = Cancel the plan
step-completed = Done
step-executing = Running
step-failed = Failed
step-pending = Open
step-expected = Expected:
step-result = Result
entry-progress = Progress
entry-plan = Plan
entry-action = Action
entry-observation = Observation
entry-thought = Thought
resource-defined = Defined in
resource-of-configuration = the configuration
resource-of-store = the store
resource-configured-help = The configuration defines it, so it is changed there.
resource-change = Change
resource-remove = Remove
resource-remove-confirm = Its name, to remove it
setting-unset = not set
setting-none = none
models-state = Names by which requests and tenants choose a model.
models-none = There is no model beside the profiles of the configuration.
models-add = Add a model
models-profile = Profile
models-model = Model of the provider
tenants-state = What the agents of each tenant may use. A tenant without settings may use everything.
skills-state = Instructions and files that agents load when a task needs them.
skills-none = There is no skill.
skills-add = Add a skill
skill-instructions = Instructions
skill-files = Files
skill-tenants = Tenants that have it
skill-tenants-all = Tenants without settings have all skills.
tenants-none = No tenant has settings.
tenants-add = Add the settings of a tenant
tenants-models = Models
tenants-money = Money a day
costs-none = Nothing was spent in these days.
costs-days = Days (UTC)
costs-by = Sums of
costs-by-caller = Key or caller
costs-model = Model
costs-provider = Provider
costs-turns = Turns
costs-input = Tokens of input
costs-cached = From the cache
costs-output = Tokens of output
costs-reasoning = Of it reasoning
costs-share = Share
costs-active = Days with costs
connect-state = Clients find the gateway at
connect-key = Each reads the key from the environment:
connect-has-sign-in = Clients that can sign in need no key: they are sent to the sign-in of the operator.
connect-open = On this machine no key is needed.
connect-command = On the machine of the gateway, this command sets up editors, and moves their MCP servers behind the gateway:
connect-sign-in = With a sign-in in place of a key
connect-shell = In a shell:
connect-claude-desktop = In claude_desktop_config.json, with sekisho on the PATH:
connect-cursor = In ~/.cursor/mcp.json, or in .cursor/mcp.json of a project:
connect-vscode = In .vscode/mcp.json; where a key is needed, VS Code asks for it once and keeps it:
connect-codex = In ~/.codex/config.toml:
connect-open-webui = In its environment. It talks to the agents, which use the tools:
plans-state = { $running ->
    [0] No plan is running
    [one] One plan is running
   *[other] { $running } plans are running
}, { $waiting ->
    [0] none waits
    [one] one waits
   *[other] { $waiting } wait
} for approval.
plan-history = { $n ->
    [one] What happened: one entry
   *[other] What happened: { $n } entries
}
costs-state = { $cost } and { $tokens } tokens in { $days ->
    [one] one day
   *[other] { $days } days
}.
costs-last = { $n ->
    [one] today
   *[other] the last { $n }
}
approvals-state = { $waiting ->
    [0] No call here waits for a decision.
    [one] One call here waits for a decision.
   *[other] { $waiting } calls here wait for a decision.
}
approvals-none = No call fits: calls that a person must approve are listed here.
approvals-keys = Keys: j and k lead to the rows, Enter opens one. On its page, a and d lead to the forms, n to the next one that waits.
approval-pending = waits
approval-approved = approved
approval-executing = running
approval-done = done
approval-unknown = outcome unknown
approval-denied = denied
approval-expired = expired
approval-asked = Asked
approval-expires = Expires
approval-next = Next one that waits
approval-given = { $given } of { $needed } approvals
approval-person = Person
approval-target = Resource or prompt
approval-reasons = Why a person must decide
approval-questions = Values that strangers may have written
approval-with = Calls that wait with it
approval-with-one = This one, too: call
approval-calls = Calls that wait
approval-approve-all = Approve all { $calls } calls
approval-approve-chosen = Approve this and the chosen calls, deny the others
approval-deny-all = Deny all { $calls } calls
approval-arguments-help = Characters that hide others are escaped. What the policies mask has its length and SHA-256 instead.
approval-changed = The approver put these in their place:
approval-sent = This is sent. Arguments are in it where their names or values differ from those above:
approval-for-approvers = Only approvers see the arguments and decide: callers with the role approver.
approval-sealed = The arguments cannot be opened with the key of the gateway (secrets.key), so the call cannot be approved.
approval-unknown-help = The gateway stopped while the call ran: nobody knows what it did, and it is not run again. Check what it did.
approval-approve = Approve
approval-effects = Effects, in the order in which they are made
approval-effect-call = Call
approval-effect-cost = Cost (USD)
approval-strike = Not this one: call { $call } of
approval-strike-help = Only an effect whose value no other one needs can be left out.
approval-struck = struck out
approval-deny = Deny
approval-take-back = Take the approval back
approval-deny-help = The caller reads it.
approval-scope = Covers
approval-scope-once = this call, once
approval-scope-minutes = each call exactly like it, for some minutes
approval-scope-session = each call of this tool in this session, for 8 hours
approval-minutes = Minutes
approval-minutes-help = For calls exactly like it: 1 to 1440.
approval-undecided = Nobody has decided yet.
approval-approver = Approver
approval-session = Session
approval-uses = Calls let through
approval-schema = Digest of the schema
nav-keys = Keys
keys-state = Keys that administrators create, rotate and revoke while the gateway runs. Those of the configuration are not listed.
keys-none = There is no managed key.
keys-add = Create a key
keys-limit = Nobody gives a key more than they have: roles, tenant, tools and time. Its token is shown once, on the next page.
key-title = Key { $id }
key-id = Id
key-person-help = The id of the caller; empty: that of the key.
key-tools-help = Names, or patterns that end in *, separated by commas; empty: all.
key-tenant-help = Empty: your own.
key-days = Days until it expires
key-days-help = Empty: it does not expire.
key-last-used = Last used
key-created-by = Created by
key-previous = Token before accepted until
key-expired = expired
key-revoked = revoked
key-token = This is its token. It is shown here once: copy it now.
key-rotate = Give it another token
key-overlap = Seconds that the token before is still accepted
key-revoke = Revoke
key-revoke-help = It is refused at once, with all its tokens, for ever.
key-revoke-confirm = Its id, to revoke it
limits-rules = Rules
limits-per = Counts for
limits-per-key = Key
limits-per-role = Role
limits-calls-left = Calls left this minute
limits-money-left = Money left today
limits-tokens-left = Tokens left today
nav-catalogue = Catalogue
catalogue-lead = Sources of tools that are allowed but off. An administrator switches one on for those who ask.
catalogue-none = There is no source to ask for.
catalogue-requests = Requests
catalogue-no-requests = Nobody has asked for a source.
catalogue-help = A source that is switched on or off is there, or gone, at the next call. The name leads to what the source may do.
catalogue-source = Source
catalogue-state = State
catalogue-text = What it is for
catalogue-changed = Since
catalogue-caller = Caller
catalogue-audience = For whom
catalogue-reason = Reason
catalogue-asked = Asked
catalogue-ask = Ask
catalogue-decide = Decide
catalogue-user = User
catalogue-key = Key
catalogue-approve = Switch on
catalogue-refuse = Refuse
catalogue-withdraw = Switch off
catalogue-sandbox = Sandbox
catalogue-dangerous = Dangerous
catalogue-approval = Needs approval
catalogue-no-tools = The source has no tools.
catalogue-unknown = Its tools are not known:
nav-sign-ins = Sign-ins
sign-ins-state = { $available ->
    [0] No upstream waits for your sign-in.
    [one] You have not signed in to one upstream that is called as its callers.
   *[other] You have not signed in to { $available } upstreams that are called as their callers.
}
sign-ins-available = Not signed in yet
sign-ins-done = Signed in
sign-ins-none = There is no sign-in yet.
sign-ins-source = Upstream
sign-ins-scopes = Scopes
sign-ins-since = Since
sign-ins-renewed = Tokens renewed
sign-ins-revoke-help = To revoke a sign-in forgets its tokens here, and revokes them at the upstream if that can be done. The next call needs a new sign-in.
nav-results = Results
results-state = Your results that were too large for a model, until they expire. Nobody else can read them.
results-none = There is no stored result.
nav-python-tools = Python functions
python-tools-state = { $count ->
    [0] There is no file of Python functions.
    [one] One file of Python functions, with problems: { $broken }.
   *[other] { $count } files of Python functions, with problems: { $broken }.
}
python-tools-none = A function in a file of the folder python_tools.directory is a tool. This writes an example.
python-tools-packages = Packages
python-tools-problem = State
python-tools-fine = fine
python-tools-source = Source
python-tools-unreadable = It cannot be read.
python-tools-cases = Cases
python-tools-no-cases = It has no cases.
python-tools-case = Case
python-tools-expected = Expected
python-tools-fails = fails
python-tools-failures = Last failures
python-tools-no-failures = None of its calls in memory has failed.
nav-sessions = Sessions
sessions-state = { $count ->
    [0] You have no session of Python.
    [one] You have one session of Python, in use now: { $used }.
   *[other] You have { $count } sessions of Python, in use now: { $used }.
}
sessions-none = A call of python_executor begins one with the argument session. It ends, or is stored, when no call uses it.
session-used = in use
session-stored = stored
session-elsewhere = at another replica
session-generation = Interpreter
session-calls = Calls
session-memory = Memory
session-last-used = Last used
session-ends = Ends without a further call
session-title = Session { $name }
session-variables = Variables
session-variable = Name
session-has-none = Its programs have defined nothing.
session-busy = A call has it now. Its variables can be seen when that has ended.
session-away = It is not in memory here. Its variables can be seen after the next call that names it.
session-truncated = There are more variables than are listed.
session-sizes = Of the object itself, in bytes, without what it refers to.
session-end = End the session
session-end-help = Its variables and files are lost, and a call that has it ends. The next call that names it begins anew.
session-end-confirm = Its name, to end it
nav-program-runs = Program runs
program-runs-state = Programs that called tools and stopped before their end.
program-runs-none = A program whose gateway stopped, or that waits for an approval, is here until it has ended.
program-run = Run
program-run-state = State
program-run-title = Run { $id }
program-run-help = The run stopped while these calls were under way, and nobody knows whether they were made. Find out, and say so; then resume the run.
program-run-settled = No call has an unknown outcome. Resume the run:
program-run-call = Call { $number }:
program-run-arguments = Arguments, SHA-256
program-run-outcome = What became of it
program-run-made = It was made: the program gets the answer below
program-run-not-made = It was not made: it is made when the run is resumed
program-run-unknown = Nobody can say: the program gets an error
program-run-answer = Answer of the tool, as JSON, of a call that was made
program-run-settle = Settle the call
result-handle = Handle
result-bytes = Bytes
result-in-session = of a session
result-title = Result { $handle }
result-place = { $from }–{ $to } of { $total }
result-nothing = Nothing fits.
result-start = From the start
result-session = Session
result-query = Query (JMESPath)
result-grep = Pattern
result-help = A result of a session is read with the id of that session. A query selects of JSON; a pattern is a regular expression that elements or lines must match.
nav-inbox = Inbox
nav-group-activity = Activity
nav-group-tools = Tools and servers
nav-group-agents = Agents and programs
nav-group-rules = Rules and costs
nav-group-administration = Administration
search-title = Search the console
search-hint = Search, or an id
search-state = An id of a call, an approval, a run, a conversation, a plan or a key opens its page; so does a part of the name of a tool, a server or a page.
search-open = Open
search-none = Nothing here has this id or name.
search-calls = Calls with this text
search-approval = approval
search-call = call
search-conversation = conversation
search-key = key
search-page = page
search-plan = plan
search-program-run = run of a program
search-run = run of a conversation
search-server = server
search-session = session of Python
search-tool = tool
views-title = Views:
views-name = Name of this view
views-save = Save the view
views-remove = Remove the view
inbox-state = What waits for you, and what does not work. The number in the navigation counts calls and paused runs.
inbox-all-approvals = All approvals
inbox-ended = Your session has ended: this page is as it was.
inbox-failed = Nothing was decided about these:
inbox-no-approvals = No call waits for a decision.
inbox-more-approvals = More calls wait
inbox-approve = Approve the chosen ones
inbox-deny = Deny the chosen ones
inbox-keys = Each approval is for this call, once. Keys: j and k lead from call to call, the space bar chooses one; r leads to the reason, a and d to the buttons.
inbox-paused = Your runs that wait for an approver
inbox-quarantined = Quarantined tools
inbox-sessions = Sessions of Python that end soon
approval-request = What the agent was asked
run-continue = Continue the run
run-continue-help = Once the call is approved or denied, the run goes on where it paused.
chat-approval = It waits for a person: the approval
connect-deep-link = Add to { $client }
first-title = Three steps to a governed tool
first-add = 1. Add an MCP server or an OpenAPI document. A test shows its tools before it is added.
first-try = 2. Try a tool: the page of the call shows each check that it passed.
first-connect = 3. Connect your editor: it gets the tools that your rules leave.
first-sign-in = An administrator adds servers. On this machine:
sign-in-local = On the machine of the gateway this prints a link that signs you in, without a key:
inbox-decided = { $n ->
    [one] One call was decided.
   *[other] { $n } calls were decided.
}
inbox-open = { $calls ->
    [one] Open it to decide
   *[other] Open it to decide about { $calls } calls
}
