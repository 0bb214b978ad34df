//! The Python code inside the guest: source texts, and how they become modules.

/// Installs the harness in an interpreter, once for a snapshot or before the first program.
///
/// Its module names cannot clash with a program's imports; a program that searches for them finds only its own
/// instance's copy.
pub fn prelude() -> String {
    let start = "import sys\nsys.modules['_sekisho_event_loop'].install()\nsys.modules['_sekisho_tools'].install()\n\
                 sys.modules['_sekisho_harness'].start()\n";
    let wait = "sys.modules['_sekisho_harness'].wait_for_turn(sys.modules['_sekisho_encode'].encode)\n";
    let of_programs = [
        ERRORS,
        PACKAGE_VALUES,
        SOURCE,
        ENCODE,
        EFFECT_VALUES,
        TOOL_CALLS,
        TOOL_SIGNATURE,
        STORED_RESULTS,
        TOOLS,
        EVENT_LOOP,
        SESSION,
    ];
    let of_modules = [
        DOCSTRING,
        MODULE_NAMES,
        MODULE_METHODS,
        MODULE_FIELDS,
        MODULE_TYPES,
        MODULE_DECORATORS,
        MODULE_READER,
        MODULE_VALUES,
        MODULE_RESULTS,
        MODULE_FINDER,
        MODULE_RUN,
    ];
    let parts = [&installed(&of_programs), &installed(&of_modules), &provided(), &installed(&[HARNESS])];
    parts.map(String::as_str).into_iter().chain([start, wait]).collect()
}

/// The whole `-c` argument of a command: the harness, the file channel, and the one turn. Without the event loop,
/// whose import takes longer than most programs, without tools, since nothing answers a command while it runs, without
/// sessions, since it ends with its program, and without modules of tools, which need both.
pub fn command() -> String {
    [include_str!("python/file_channel.py"), &installed(&[ERRORS, PACKAGE_VALUES, SOURCE, ENCODE, HARNESS]), RUN]
        .concat()
}

/// Runs before a snapshot, after the prelude.
pub const REHEARSAL: &str =
    "import sys\nsys.modules['_sekisho_harness'].rehearse(sys.modules['_sekisho_encode'].encode)\n";

/// Runs the one program of an instance, after the prelude. `host.call` delivers the program.
///
/// An expression to be shown, in whose place the harness runs the program: this is the cheapest source to compile,
/// and it is compiled again for each instance.
pub const TURN: &str = "0\n";

/// The same for a command, which has nothing compiled in advance.
const RUN: &str = "import sys\nsys.modules['_sekisho_harness'].start()\n\
                   sys.modules['_sekisho_harness'].run(sys.modules['_sekisho_encode'].encode)\n";

/// A module name, and a source text.
type Module = (&'static str, &'static str);

const DOCSTRING: Module = ("_sekisho_docstring", include_str!("python/docstring.py"));
const ENCODE: Module = ("_sekisho_encode", include_str!("python/encode.py"));
const EFFECT_VALUES: Module = ("_sekisho_effect_values", include_str!("python/effect_values.py"));
const ERRORS: Module = ("_sekisho_errors", include_str!("python/errors.py"));
const EVENT_LOOP: Module = ("_sekisho_event_loop", include_str!("python/event_loop.py"));
const HARNESS: Module = ("_sekisho_harness", include_str!("python/harness.py"));
const MODULE_DECORATORS: Module = ("_sekisho_module_decorators", include_str!("python/module_decorators.py"));
const MODULE_FIELDS: Module = ("_sekisho_module_fields", include_str!("python/module_fields.py"));
const MODULE_FINDER: Module = ("_sekisho_module_finder", include_str!("python/module_finder.py"));
const MODULE_METHODS: Module = ("_sekisho_module_methods", include_str!("python/module_methods.py"));
const MODULE_NAMES: Module = ("_sekisho_module_names", include_str!("python/module_names.py"));
const MODULE_READER: Module = ("_sekisho_module_reader", include_str!("python/module_reader.py"));
const MODULE_RESULTS: Module = ("_sekisho_module_results", include_str!("python/module_results.py"));
const MODULE_RUN: Module = ("_sekisho_module_run", include_str!("python/module_run.py"));
const MODULE_TYPES: Module = ("_sekisho_module_types", include_str!("python/module_types.py"));
const MODULE_VALUES: Module = ("_sekisho_module_values", include_str!("python/module_values.py"));
const PACKAGE_VALUES: Module = ("_sekisho_package_values", include_str!("python/package_values.py"));
const SESSION: Module = ("_sekisho_session", include_str!("python/session.py"));
const SOURCE: Module = ("_sekisho_source", include_str!("python/source.py"));
const STORED_RESULTS: Module = ("_sekisho_stored_results", include_str!("python/stored_results.py"));
const TOOLS: Module = ("_sekisho_tools", include_str!("python/tools.py"));
const TOOL_CALLS: Module = ("_sekisho_tool_calls", include_str!("python/tool_calls.py"));
const TOOL_SIGNATURE: Module = ("_sekisho_tool_signature", include_str!("python/tool_signature.py"));

/// Parts of packages that the interpreter does not have, by their paths. They are compiled when a program imports them.
const PROVIDED: [Module; 31] = [
    ("IPython/__init__.py", include_str!("python/provided/IPython/__init__.py")),
    ("IPython/display.py", include_str!("python/provided/IPython/display.py")),
    ("_sekisho_libraries.py", include_str!("python/provided/_sekisho_libraries.py")),
    ("agents.py", include_str!("python/provided/agents.py")),
    ("annotated_types.py", include_str!("python/provided/annotated_types.py")),
    ("autogen_core/tools.py", include_str!("python/provided/autogen_core/tools.py")),
    ("crewai/tools.py", include_str!("python/provided/crewai/tools.py")),
    ("fastmcp/__init__.py", include_str!("python/provided/fastmcp/__init__.py")),
    ("fastmcp/exceptions.py", include_str!("python/provided/fastmcp/exceptions.py")),
    ("google/adk/agents/__init__.py", include_str!("python/provided/google/adk/agents/__init__.py")),
    ("google/adk/agents/llm_agent.py", include_str!("python/provided/google/adk/agents/llm_agent.py")),
    ("google/adk/tools/__init__.py", include_str!("python/provided/google/adk/tools/__init__.py")),
    ("google/adk/tools/tool_context.py", include_str!("python/provided/google/adk/tools/tool_context.py")),
    ("langchain/tools.py", include_str!("python/provided/langchain/tools.py")),
    ("langchain_core/callbacks.py", include_str!("python/provided/langchain_core/callbacks.py")),
    ("langchain_core/runnables.py", include_str!("python/provided/langchain_core/runnables.py")),
    ("langchain_core/tools.py", include_str!("python/provided/langchain_core/tools.py")),
    ("llama_index/core/tools.py", include_str!("python/provided/llama_index/core/tools.py")),
    ("mcp/server/__init__.py", include_str!("python/provided/mcp/server/__init__.py")),
    ("mcp/server/fastmcp.py", include_str!("python/provided/mcp/server/fastmcp.py")),
    ("mcp/types.py", include_str!("python/provided/mcp/types.py")),
    ("pydantic/__init__.py", include_str!("python/provided/pydantic/__init__.py")),
    ("pydantic/alias_generators.py", include_str!("python/provided/pydantic/alias_generators.py")),
    ("pydantic/dataclasses.py", include_str!("python/provided/pydantic/dataclasses.py")),
    ("pydantic/errors.py", include_str!("python/provided/pydantic/errors.py")),
    ("pydantic/fields.py", include_str!("python/provided/pydantic/fields.py")),
    ("pydantic/main.py", include_str!("python/provided/pydantic/main.py")),
    ("pydantic_ai.py", include_str!("python/provided/pydantic_ai.py")),
    ("smolagents.py", include_str!("python/provided/smolagents.py")),
    ("strands.py", include_str!("python/provided/strands.py")),
    ("typing_extensions.py", include_str!("python/provided/typing_extensions.py")),
];

fn provided() -> String {
    let sources: serde_json::Map<_, _> =
        PROVIDED.map(|(path, source)| (path.to_owned(), source.into())).into_iter().collect();
    let sources = serde_json::Value::from(sources);
    format!(
        "import sys\nsys.modules['_sekisho_module_finder'].PROVIDED.sources.update({sources})\n\
         sys.modules['_sekisho_module_finder'].install()\n"
    )
}

fn installed(modules: &[Module]) -> String {
    let mut text = String::from("def _sekisho_install(name, source):\n");
    text.push_str("    import sys, types\n");
    text.push_str("    module = sys.modules[name] = types.ModuleType(name)\n");
    text.push_str("    exec(compile(source, name + '.py', 'exec'), module.__dict__)\n");
    for (name, source) in modules {
        text.push_str(&format!("_sekisho_install({name:?}, {})\n", literal(source)));
    }
    text.push_str("del _sekisho_install\n");
    text
}

/// A text as a Python literal: each of JSON's escapes means the same in Python.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
