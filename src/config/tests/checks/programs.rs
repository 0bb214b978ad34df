//! Settings that run programs: the sandbox, code mode and Python tools.

use super::*;

#[test]
fn a_sandbox_in_which_nothing_could_run_is_refused() {
    let wrong = [
        ("memory_limit_mb: 63", "sandbox.memory_limit_mb"),
        ("memory_limit_mb: 4097", "sandbox.memory_limit_mb"),
        ("max_memory_mb: 511", "sandbox.max_memory_mb"),
        ("timeout_seconds: 0", "sandbox.timeout_seconds"),
        ("workers: 0", "sandbox.workers"),
        ("max_instances: 0", "sandbox.max_instances"),
        ("max_result_bytes: 0", "sandbox.max_result_bytes"),
        ("data_files: [/]", "sandbox.data_files[0]"),
        ("data_files: [/a/table.csv, /b/table.csv]", "sandbox.data_files[1]"),
        ("code_mode: {max_calls: 0}", "sandbox.code_mode.max_calls"),
        ("code_mode: {timeout_seconds: 0}", "sandbox.code_mode.timeout_seconds"),
        ("code_mode: {max_depth: 0}", "sandbox.code_mode.max_depth"),
        ("code_mode: {max_depth: 5}", "sandbox.code_mode.max_depth"),
        ("sessions: {max_image_bytes: 134217728}", "sandbox.sessions.max_image_bytes"),
    ];
    for (line, setting) in wrong {
        let error = format!("{:?}", load_with(&format!("sandbox: {{{line}}}\n"), &[]).unwrap_err());
        assert!(error.contains(setting), "{line}: {error}");
    }
    assert!(load_with("sandbox: {max_memory_mb: 512, data_files: [/a/table.csv]}\n", &[]).is_ok());
}

#[test]
fn code_mode_needs_the_tool_that_runs_programs_and_is_the_only_list() {
    for (text, setting) in [
        (
            "agent: {profiles: {anthropic: {code_mode: true, tools: {include: [echo]}}}}",
            "agent.profiles.anthropic.code_mode",
        ),
        ("mcp: {endpoints: {a: {code_mode: true, search: true}}}", "mcp.endpoints.a.code_mode"),
        ("mcp: {endpoints: {a: {max_name_length: 15}}}", "mcp.endpoints.a.max_name_length"),
        ("mcp: {endpoints: {a: {max_name_length: 65}}}", "mcp.endpoints.a.max_name_length"),
    ] {
        let error = format!("{:?}", load(text).unwrap_err());
        assert!(error.contains(setting), "{text}: {error}");
    }
    let fitting = "agent: {profiles: {anthropic: {code_mode: true, tools: {include: [echo, python_*]}}}}";
    assert!(load(fitting).unwrap().agent.profiles["anthropic"].code_mode);
}

#[test]
fn settings_of_python_tools_are_plain_values_for_files_of_a_folder() {
    let text =
        "python_tools: {directory: tools, settings: {weather: {units: celsius, cities: [Bern], more: {days: 3}}}}";
    let config = load(text).unwrap().python_tools;
    assert_eq!(config.settings["weather"]["more"]["days"], 3);
    let reference =
        "python_tools:\n  directory: tools\n  settings:\n    weather: {units: [celsius, '${UNITS:-kelvin}']}\n";
    for found in [load_with(reference, &[("UNITS", "s3cret")]), load_text(reference, &[("UNITS", "s3cret")])] {
        let errors = found.unwrap_err();
        let error = errors[0].to_string();
        assert!(error.contains("sekisho.yaml:4") && error.contains("which no secret enters"), "{error}");
        assert!(errors.len() == 1 && !error.contains("s3cret"), "{error}");
    }
    for (text, setting) in [
        ("{directory: tools, settings: {a__b: {}}}", "python_tools.settings.a__b"),
        ("{settings: {weather: {}}}", "python_tools.settings"),
    ] {
        let error = format!("{:?}", load(&format!("python_tools: {text}")).unwrap_err());
        assert!(error.contains(setting) && error.contains("advice"), "{error}");
    }
}
