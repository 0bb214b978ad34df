//! What the compiler does not check of the source: the order of the layers, the words, and the choice of tests.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;

#[path = "../src/core/checkout.rs"]
mod checkout;

use checkout::checkout;

/// A reference from one module to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    file: String,
    line: usize,
    /// The top-level module that is used.
    used: String,
}

/// The crate whose `lib.rs` lists its modules in the order of their layers. Between crates, cargo holds the layers.
const CRATE_OF_LAYERS: &str = "src/calls";

/// The crates that run WebAssembly. Nothing that a limit, a route or a policy needs is in them.
const CRATES_WITH_WASMTIME: [&str; 4] = [".", "src/guest-system", "src/guest-worker", "src/preparation"];

#[test]
fn modules_use_only_modules_below_them() {
    let members = members();
    let mut upward = Vec::new();
    let library = format!("{CRATE_OF_LAYERS}/lib.rs");
    let layers = layers(&read(&library));
    let is_own = |file: &str| crate_of(&members, file) == CRATE_OF_LAYERS;
    for (file, text) in product_files().into_iter().filter(|(file, _)| is_own(file)) {
        let Some(own) = top_level(CRATE_OF_LAYERS, &file) else { continue };
        let own_rank = rank(&layers, own).unwrap_or_else(|| panic!("{file}: {library} does not list {own}"));
        for reference in references(CRATE_OF_LAYERS, &file, &text) {
            let used = rank(&layers, &reference.used).unwrap_or_else(|| panic!("{reference:?} is not in {library}"));
            if used < own_rank {
                upward.push(format!("{}:{}: {own} uses {}", reference.file, reference.line, reference.used));
            }
        }
    }
    assert!(upward.is_empty(), "a module uses one above it in lib.rs:\n{}", upward.join("\n"));
}

/// The folders of the crates below the package of the root, as `Cargo.toml` lists them.
fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let list = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')).expect("[workspace]").0;
    list.split(',')
        .map(|member| member.trim().trim_matches('"').to_owned())
        .filter(|member| !member.is_empty())
        .collect()
}

/// The folder of the crate that a file belongs to.
fn crate_of<'a>(members: &'a [String], file: &str) -> &'a str {
    let is_of = |member: &&String| file.strip_prefix(&***member).is_some_and(|rest| rest.starts_with('/'));
    members.iter().find(is_of).map_or("src", |member| member)
}

/// A crate that is not in the list of members would be compiled only where another one uses it.
#[test]
fn every_crate_is_a_member() {
    let (mut files, root) = (Vec::new(), checkout());
    ["src", "tests"].iter().for_each(|folder| collect(&root.join(folder), &mut files));
    let manifests = files.iter().filter(|path| path.ends_with("Cargo.toml"));
    let folders =
        manifests.map(|path| path.parent().unwrap().strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    assert_eq!(folders.collect::<BTreeSet<_>>(), members().into_iter().collect());
}

#[test]
fn only_the_crates_of_guests_use_wasmtime() {
    let packages = members().into_iter().chain([".".to_owned()]);
    let users = packages.filter(|package| {
        let manifest = read(&format!("{package}/Cargo.toml"));
        let dependencies = manifest.split_once("\n[dependencies]\n").expect("dependencies").1;
        dependencies.split("\n[").next().unwrap().lines().any(|line| line.starts_with("wasmtime"))
    });
    assert_eq!(users.collect::<BTreeSet<_>>(), CRATES_WITH_WASMTIME.map(str::to_owned).into());
}

/// A permit is opened in one place, so that nothing is executed without one.
#[test]
fn only_the_execute_stage_runs_tools() {
    let files = product_files().into_iter().filter(|(_, text)| text.contains(".executor()"));
    assert_eq!(files.map(|(file, _)| file).collect::<Vec<_>>(), ["src/calls/pipeline/execute.rs"]);
}

/// The files in which the gateway itself starts, reloads (also for a change of its configuration) and closes. What it hands out has a
/// type for each topic, with its fields and its lock.
const FILES_OF_THE_GATEWAY: [&str; 5] = [
    "src/gateway/background.rs",
    "src/gateway/configuration_changes.rs",
    "src/gateway/lib.rs",
    "src/gateway/reload.rs",
    "src/gateway/start.rs",
];

#[test]
fn the_gateway_itself_has_few_methods() {
    let files = product_files().into_iter().filter(|(_, text)| text.contains("impl Gateway {"));
    assert_eq!(files.map(|(file, _)| file).collect::<Vec<_>>(), FILES_OF_THE_GATEWAY);
}

/// What is stored, or compared with what is stored, has the time of the database: a machine's clock may be wrong.
#[test]
fn moments_of_the_store_are_those_of_its_clock() {
    let files = product_files().into_iter().filter(|(file, _)| file.starts_with("src/store"));
    let by_machine = files.filter(|(_, text)| {
        ["Timestamp::now()", "SystemTime::now()", "Zoned::now()"].iter().any(|now| text.contains(now))
    });
    assert_eq!(by_machine.map(|(file, _)| file).collect::<Vec<_>>(), ["src/store/lib.rs"], "it compares the two");
    let makers = product_files().into_iter().filter(|(_, text)| text.contains("DatabaseTime::of_database"));
    let makers = makers.map(|(file, _)| file).filter(|file| !file.starts_with("src/store"));
    assert_eq!(makers.collect::<Vec<_>>(), ["src/auth/managed.rs"]);
}

/// What a caller writes besides arguments, and the files of the sources that may read it. Policies and approvers see what is sent
/// before, so that nothing else that a caller wrote may be added to it where it is sent.
const WRITTEN_BY_CALLERS: [(&str, &[&str]); 9] = [
    ("origin.user_text", &[]),
    ("origin.prompt_params", &[]),
    ("origin.claimed_user", &[]),
    ("resumption.idempotency_key", &[]),
    ("resumption.run", &[]),
    ("resumption.replay", &[]),
    // Credentials, by their names.
    ("origin.tool_parameters", &["src/mcp-client/server/caller_sessions.rs", "src/openapi/call/executor.rs"]),
    // A part of the destination, which is judged.
    ("client.meta", &["src/mcp-client/server.rs", "src/mcp-client/server/session.rs"]),
    ("client.as_task", &["src/mcp-client/server/task.rs"]),
];

#[test]
fn executors_read_nothing_of_a_call_that_was_not_judged() {
    let files = product_files();
    let sources = ["src/mcp-client/", "src/openapi/", "src/tools/", "src/user-tokens/"];
    let of_sources = || files.iter().filter(|(file, _)| sources.iter().any(|source| file.starts_with(source)));
    for (field, may_read) in WRITTEN_BY_CALLERS {
        let read = format!("call.{field}");
        let readers: Vec<_> = of_sources().filter(|(_, text)| text.contains(&read)).map(|(file, _)| file).collect();
        assert_eq!(readers, may_read, "{field}");
    }
}

/// Words that nobody outside can look up, as names of types, functions and constants. The glossary has the field's.
const BANNED_TYPES: [&str; 22] = [
    "AtTheDoor",
    "Bill",
    "Books",
    "Bringing",
    "CannotListen",
    "CannotOpen",
    "CannotStart",
    "Desk",
    "Errand",
    "Face",
    "Hearing",
    "House",
    "McpFace",
    "Mender",
    "Misfit",
    "Narrator",
    "Objection",
    "Patience",
    "PlainCall",
    "Promptly",
    "Shelf",
    "Teller",
];
const BANNED_FUNCTIONS: [&str; 9] = ["hear", "keep_house", "look", "mend", "note", "raise", "say", "tell", "told"];
/// `MAX_…`, `…_TIMEOUT` and `…_TTL` are the words for bounds.
const BANNED_PREFIXES: [&str; 3] = ["MOST_", "LARGEST_", "LONGEST_"];
const BANNED_SUFFIXES: [&str; 2] = ["_WITHIN", "_KEPT_FOR"];

#[test]
fn names_are_words_that_can_be_looked_up() {
    let files = product_files();
    let banned =
        files.iter().flat_map(|(file, text)| banned_names(text).into_iter().map(move |name| format!("{file}: {name}")));
    let banned: Vec<_> = banned.collect();
    assert!(banned.is_empty(), "docs/glossary.md has the words for these:\n{}", banned.join("\n"));
}

#[test]
fn a_banned_name_is_found() {
    let text = "struct Desk;\nenum FileFault {}\nconst MOST_ROWS: usize = 1;\nconst READ_WITHIN: u8 = 1;\nfn tell(&self) {}\nfn telling() {}\n";
    assert_eq!(banned_names(text), ["Desk", "FileFault", "MOST_ROWS", "READ_WITHIN", "tell"]);
}

/// The names in a text that are defined with a banned word.
fn banned_names(text: &str) -> Vec<String> {
    let words: Vec<_> =
        text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let is_banned = |pair: &&[&str]| match pair[0] {
        "struct" | "enum" | "trait" | "type" => BANNED_TYPES.contains(&pair[1]) || pair[1].ends_with("Fault"),
        "fn" => BANNED_FUNCTIONS.contains(&pair[1]),
        "const" | "static" => {
            BANNED_PREFIXES.iter().any(|prefix| pair[1].starts_with(prefix))
                || BANNED_SUFFIXES.iter().any(|suffix| pair[1].ends_with(suffix))
        }
        _ => false,
    };
    words.windows(2).filter(is_banned).map(|pair| pair[1].to_owned()).collect()
}

/// Of two types with one name, `/openapi.json` has the schema of one, by which the other is described, too.
#[test]
fn schemas_of_the_api_have_different_names() {
    let mut files = BTreeMap::<String, Vec<String>>::new();
    for (file, text) in product_files() {
        for name in schema_names(&text) {
            files.entry(name).or_default().push(file.clone());
        }
    }
    files.retain(|_, files| files.len() > 1);
    assert!(files.is_empty(), "give one another name, or `#[schema(as = …)]`: {files:#?}");
}

#[test]
fn the_name_of_a_schema_is_found() {
    let text = "#[derive(Debug, ToSchema)]\npub(super) enum One {\n}\n#[derive(Debug, utoipa::ToSchema, Clone)]\n#[serde(untagged)]\n\
        #[schema(as = Two)]\nstruct TwoBody<'a> {\n}\n#[derive(Debug)]\nstruct None;\n";
    assert_eq!(schema_names(text), ["One", "Two"]);
}

/// The names of the schemas that a text derives for the description of the API.
fn schema_names(text: &str) -> Vec<String> {
    let types = r"#\[derive\([^\]]*\bToSchema\b[^\]]*\]((?:\s*#\[[^\]]*\])*)\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum)\s+(\w+)";
    let (types, renamed) = (Regex::new(types).unwrap(), Regex::new(r"\bas = (\w+)").unwrap());
    let name = |[attributes, own]: [&str; 2]| match renamed.captures(attributes) {
        Some(found) => found[1].to_owned(),
        None => own.to_owned(),
    };
    types.captures_iter(text).map(|found| name(found.extract().1)).collect()
}

/// Phrases of the same kind, in comments, messages and pages.
const BANNED_PHRASES: [&str; 8] =
    ["at the door", "by way of", "for want of", "goes its way", "hangs up", "hung up", "stands there", "shut in"];

#[test]
fn texts_are_plain_technical_english() {
    let mut files = vec![checkout().join("README.md")];
    for folder in ["src", "docs", "config", "scripts", "deploy", "examples"] {
        collect(&checkout().join(folder), &mut files);
    }
    let mut found = Vec::new();
    for path in &files {
        // Recorded third-party data may be binary.
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let lines = text.lines().enumerate().filter(|(_, line)| has_banned_phrase(line));
        found.extend(lines.map(|(at, line)| format!("{}:{}: {line}", path.display(), at + 1)));
    }
    assert!(found.is_empty(), "say it in the field's terms:\n{}", found.join("\n"));
}

#[test]
fn a_banned_phrase_is_found() {
    assert!(has_banned_phrase("// The key Stands there twice.") && !has_banned_phrase("// A duplicate key."));
}

fn has_banned_phrase(line: &str) -> bool {
    let line = line.to_lowercase();
    BANNED_PHRASES.iter().any(|phrase| line.contains(phrase))
}

/// Forms of sentences that a reader has to parse twice where a noun says the same, as regular expressions, with their maximum in the
/// comments of `src` and in `docs`. The count may only fall: lower the number when you lower the count.
const COUNTED_FORMS: [(&str, usize); 3] = [
    (r"(?i)\bwhat (it|they|is|was|are|were|has|have|a|the)\b", 264),
    (r"(?i)\b(that|those) of\b", 90),
    (r"(?i)\balone\b", 35),
];
/// How far a count may be below its maximum.
const COUNT_SLACK: usize = 5;

#[test]
fn forms_that_are_parsed_twice_only_become_fewer() {
    let (mut sources, mut pages) = (Vec::new(), Vec::new());
    collect(&checkout().join("src"), &mut sources);
    collect(&checkout().join("docs"), &mut pages);
    let has_extension = |path: &Path, wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
    sources.retain(|path| has_extension(path, "rs"));
    pages.retain(|path| has_extension(path, "md"));
    let read_all =
        |paths: &[PathBuf]| paths.iter().map(|path| std::fs::read_to_string(path).unwrap() + "\n").collect::<String>();
    let text = comments_of(&read_all(&sources)) + &read_all(&pages);
    for (form, maximum) in COUNTED_FORMS {
        let count = count_of(form, &text);
        assert!(count <= maximum, "{form} is there {count} times, of at most {maximum}: write the noun");
        assert!(count + COUNT_SLACK >= maximum, "{form} is there {count} times: lower its number, {maximum}");
    }
}

#[test]
fn forms_are_counted_in_comments() {
    let text =
        "/// What it has, and those of\n// somewhat it.\nlet what_is = \"what is alone\"; // alone\n    //! Alone.\n";
    let comments = comments_of(text);
    assert_eq!(COUNTED_FORMS.map(|(form, _)| count_of(form, &comments)), [1, 1, 1]);
}

/// The lines of a source that are comments as a whole.
fn comments_of(source: &str) -> String {
    let comments = source.lines().filter(|line| line.trim_start().starts_with("//"));
    comments.flat_map(|line| [line, "\n"]).collect()
}

fn count_of(form: &str, text: &str) -> usize {
    Regex::new(form).unwrap().find_iter(text).count()
}

#[test]
fn the_architecture_page_shows_every_module_and_none_that_is_missing() {
    let page = read("docs/architecture.md");
    let map = page.split("```").find(|block| block.contains("src/main.rs")).unwrap();
    let is_path = |word: &&str| word.starts_with("src/") || word.starts_with("tests/");
    let named: BTreeSet<_> =
        map.split([' ', ',', ';', '\n']).filter(is_path).map(|word| word.trim_end_matches('/')).collect();
    let missing = named.iter().find(|path| !checkout().join(path).exists());
    assert_eq!(missing, None, "docs/architecture.md names what is not there");
    let layers = layers(&read(&format!("{CRATE_OF_LAYERS}/lib.rs")));
    let modules = layers.into_iter().map(|module| format!("{CRATE_OF_LAYERS}/{module}"));
    let unnamed = modules
        .chain(members())
        .find(|path| !named.iter().any(|named| named == path || named.starts_with(&format!("{path}/"))));
    assert_eq!(unnamed, None, "docs/architecture.md does not name it");
}

/// The table of the stages is the code: its lines, in their order.
#[test]
fn the_architecture_page_has_each_line_of_the_pipeline() {
    let (page, code) = (read("docs/architecture.md"), read("src/calls/pipeline.rs"));
    let table = page.split_once("| stage | line |").unwrap().1.split("\n\n").next().unwrap();
    let named = table.lines().skip(2).map(|row| row.split('|').nth(2).unwrap().trim().trim_matches('`'));
    let body = code.split_once("async fn run(").and_then(|(_, rest)| rest.split_once("CallError> {\n")).unwrap().1;
    let (body, starts) = (body.split_once("\n    }\n").unwrap().0, |line: &&str| line.starts_with("        "));
    let lines = body.lines().filter(starts).map(|line| &line[8..]).filter(|line| !line.starts_with([' ', '}']));
    let (named, lines): (Vec<_>, Vec<_>) = (named.collect(), lines.collect());
    assert_eq!(named.len(), lines.len(), "{lines:#?}");
    let other = lines.iter().zip(named).find(|(line, named)| !line.contains(&format!("{named}(")));
    assert_eq!(other, None, "docs/architecture.md does not name this line");
}

/// The letters of the documents of the specification, each with the number of its requirements.
const REQUIREMENTS: [(char, usize); 5] = [('A', 73), ('B', 25), ('C', 41), ('D', 34), ('E', 88)];

/// A rule without a test is lost unnoticed. Where the program does not follow a rule, the page has the reason in place of a test.
#[test]
fn every_requirement_has_a_test_that_is_there() {
    let page = read("docs/specification.md");
    let rows: Vec<_> = page.lines().filter_map(requirement).collect();
    let ids = REQUIREMENTS.iter().flat_map(|(letter, count)| (1..=*count).map(move |at| format!("{letter}{at}")));
    assert_eq!(rows.iter().map(|[id, ..]| (*id).to_owned()).collect::<Vec<_>>(), ids.collect::<Vec<_>>());
    let modules = modules();
    let mut missing = Vec::new();
    for [id, rule, tests] in rows {
        assert!(!rule.is_empty(), "{id} has no rule");
        let named: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        if tests.starts_with("Decided: ") {
            continue;
        }
        assert!(!named.is_empty(), "docs/specification.md names no test for {id}");
        missing.extend(named.into_iter().filter(|test| !has_test(&modules, test)).map(|test| format!("{id}: {test}")));
    }
    assert!(missing.is_empty(), "docs/specification.md names tests that are not there:\n{}", missing.join("\n"));
}

#[test]
fn a_test_is_found_by_its_module() {
    assert_eq!(requirement("| **E1** | A rule. | `a::b` · `c::d` |"), Some(["E1", "A rule.", "`a::b` · `c::d`"]));
    assert_eq!(requirement("| id | rule | test |"), None);
    let text = "#[tokio::test]\n#[ignore = \"slow\"]\nasync fn works() {}\nfn helps() {}\n";
    let modules = BTreeMap::from([("calls::budget".to_owned(), text.to_owned())]);
    for (test, is_there) in [
        ("calls::budget::works", true),
        ("calls::budget::tests::works", true),
        ("calls::budget::helps", false),
        ("calls::limits::works", false),
        ("works", false),
    ] {
        assert_eq!(has_test(&modules, test), is_there, "{test}");
    }
}

/// The id, the rule and the tests of a row.
fn requirement(line: &str) -> Option<[&str; 3]> {
    let (id, rest) = line.strip_prefix("| **")?.split_once("** | ")?;
    let (rule, tests) = rest.strip_suffix(" |")?.split_once(" | ")?;
    Some([id, rule, tests])
}

/// Whether a module, or the tests at the end of its file, have a test of that path.
fn has_test(modules: &BTreeMap<String, String>, test: &str) -> bool {
    let Some((module, name)) = test.rsplit_once("::") else { return false };
    let is_test = Regex::new(&format!(r"#\[(tokio::)?test\b.*\]\s*(#\[.*\]\s*)*(async )?fn {name}\(")).unwrap();
    let files = [Some(module), module.strip_suffix("::tests")];
    files.into_iter().flatten().filter_map(|module| modules.get(module)).any(|text| is_test.is_match(text))
}

/// The files of `src` and of the integration tests by their modules, those of the latter below `integration`.
fn modules() -> BTreeMap<String, String> {
    let (mut files, root) = (Vec::new(), checkout());
    collect(&root.join("src"), &mut files);
    collect(&root.join("tests/integration"), &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let module = |path: &Path| {
        let path = path.with_extension("");
        let path = path.strip_prefix(root.join("src")).or_else(|_| path.strip_prefix(root.join("tests"))).unwrap();
        path.to_str().unwrap().trim_end_matches("/lib").replace('/', "::")
    };
    files.iter().map(|path| (module(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// Names of tests are chosen by a part of their path, so a new test may fall into the filter of another suite.
#[test]
fn every_ignored_test_is_run_by_exactly_one_suite() {
    let filters = filters_of_ignored_tests();
    let tests = ignored_tests();
    for test in &tests {
        let suites: Vec<_> = filters.iter().filter(|filter| test.contains(&***filter)).collect();
        assert_eq!(suites.len(), 1, "{test} is selected by {suites:?}");
    }
    for filter in filters {
        assert!(tests.iter().any(|test| test.contains(&*filter)), "{filter} in scripts/suites.ini selects nothing");
    }
}

/// Where only documentation changed, `.ci/run` leaves out the suites that do not read it.
#[test]
fn tests_that_read_pages_are_in_their_suite() {
    let table = read("scripts/suites.ini");
    let suite = table.split("\n[pages]\n").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let filters: Vec<_> = suite.split_whitespace().filter(|word| word.ends_with("::")).collect();
    let (mut files, root) = (Vec::new(), checkout());
    collect(&root.join("src"), &mut files);
    collect(&root.join("tests/integration"), &mut files);
    let mut readers = 0;
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        if reads_pages(&std::fs::read_to_string(file).unwrap()) {
            let module = file.with_extension("").to_str().unwrap().replace('/', "::") + "::";
            assert!(filters.iter().any(|filter| module.contains(filter)), "{module} is not in [pages]: {filters:?}");
            readers += 1;
        }
    }
    assert!(readers > 5, "{readers} files read pages");
}

/// Whether a test reads a page of the documentation.
fn reads_pages(text: &str) -> bool {
    let paths = ["include_str!(\"", "read(\""].into_iter().flat_map(|call| text.split(call).skip(1));
    let mut paths = paths.filter_map(|rest| rest.split('"').next());
    paths.any(|path| path.ends_with(".md") && (path.contains("docs/") || !path.trim_start_matches("../").contains('/')))
}

/// The last words of the commands that run ignored tests: in the table of suites, and in the script of one of them.
fn filters_of_ignored_tests() -> Vec<String> {
    let commands = read("scripts/suites.ini") + &read("scripts/soak");
    let lines = commands.lines().filter(|line| !line.starts_with('#'));
    let words_of_line = |line: &str| {
        let commands = line.split("&&").filter_map(|command| command.split_once("--ignored "));
        commands
            .filter_map(|(_, rest)| Some(rest.split_whitespace().last()?.trim_end_matches('\'').to_owned()))
            .collect()
    };
    lines.flat_map::<Vec<_>, _>(words_of_line).collect()
}

/// The integration tests with `#[ignore]`, by their paths as the test program names them.
fn ignored_tests() -> Vec<String> {
    let (folder, mut files, mut tests) = (checkout().join("tests/integration"), Vec::new(), Vec::new());
    collect(&folder, &mut files);
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let module = file.with_extension("").strip_prefix(&folder).unwrap().to_str().unwrap().replace('/', "::");
        let text = std::fs::read_to_string(file).unwrap();
        let ignored = text.split("\n#[ignore").skip(1);
        let names = ignored.filter_map(|rest| rest.split_once("fn ")?.1.split('(').next());
        tests.extend(names.map(|name| format!("{module}::{name}")));
    }
    tests
}

/// The tests that run on PostgreSQL, too, are those that this file lists when they open a store (`scripts/test-stores`).
#[test]
fn only_the_stores_of_tests_use_the_database_of_tests() {
    const SUPPORT: &str = "src/store/test_support.rs";
    let (mut files, root) = (Vec::new(), checkout());
    collect(&root.join("src"), &mut files);
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.retain(|file| std::fs::read_to_string(file).unwrap().contains("\"TEST_DATABASE_URL\""));
    assert_eq!(files, [root.join(SUPPORT)]);
}

#[test]
fn an_upward_use_is_found() {
    let layers =
        layers("pub mod cli;\n// A comment.\npub mod gateway;\npub(crate) mod core;\n#[cfg(test)]\nmod fuzz;\n");
    assert_eq!(layers, ["cli", "gateway", "core", "fuzz"]);
    let text = "use crate::gateway::Gateway;\nuse crate::{\n    cli::run,\n    core::{call, error},\n};\nfn f() { crate::cli::g() }\n";
    let found: Vec<_> =
        references("src", "src/core/a.rs", text).into_iter().map(|found| (found.line, found.used)).collect();
    let expected = [(1, "gateway"), (3, "cli"), (4, "core"), (6, "cli")];
    assert_eq!(found, expected.map(|(line, used)| (line, used.to_owned())));
    let root = references("src", "src/core.rs", "use super::gateway::Gateway;\n");
    assert_eq!(root.first().map(|found| &*found.used), Some("gateway"), "`super` of a top-level module is the crate");
}

#[test]
fn references_in_tests_and_comments_do_not_count() {
    let text = "//! See crate::cli.\nuse crate::core::call;\n#[cfg(test)]\nmod tests {\n    use crate::cli::main;\n}\n";
    let product = product_code(text);
    let found = references("src", "src/core/a.rs", &product);
    assert_eq!(found.iter().map(|found| (found.line, &*found.used)).collect::<Vec<_>>(), [(2, "core")]);
}

/// The modules of a `lib.rs` in their order.
fn layers(library: &str) -> Vec<String> {
    let lines = library.lines().filter_map(|line| line.trim().strip_suffix(';'));
    lines.filter_map(|line| line.split_once("mod ").map(|(_, name)| name.to_owned())).collect()
}

fn rank(layers: &[String], module: &str) -> Option<usize> {
    layers.iter().position(|layer| layer == module)
}

/// The top-level module that a file of a crate belongs to.
fn top_level<'a>(folder: &str, file: &'a str) -> Option<&'a str> {
    let path = file.strip_prefix(folder)?.strip_prefix('/')?;
    let first = path.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(name, "lib" | "main")).then_some(name)
}

/// The paths `crate::name` of a text, those of a group `crate::{a::B, c}` included.
fn references(folder: &str, file: &str, text: &str) -> Vec<Reference> {
    let path = file.strip_prefix(folder).and_then(|path| path.strip_prefix('/'));
    let is_top_level_file = path.is_some_and(|path| !path.contains('/'));
    let mut found = BTreeSet::new();
    for root in ["crate::", "super::"].into_iter().take(1 + usize::from(is_top_level_file)) {
        for (start, _) in text.match_indices(root) {
            if text[..start].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '$') {
                continue;
            }
            for (offset, used) in names_after(&text[start + root.len()..]) {
                let line = text[..start + root.len() + offset].matches('\n').count() + 1;
                found.insert(Reference { file: file.to_owned(), line, used });
            }
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|reference| reference.line);
    found
}

/// The first name of a path, or of each path of a group, with where it begins.
fn names_after(path: &str) -> Vec<(usize, String)> {
    let name_at = |start: usize| {
        let name: String = path[start..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // A type or a function of the crate itself is not a module.
        name.starts_with(|c: char| c.is_ascii_lowercase()).then_some((start, name))
    };
    if !path.starts_with('{') {
        return name_at(0).into_iter().collect();
    }
    let (mut depth, mut names, mut expects_name) = (0_usize, Vec::new(), false);
    for (at, c) in path.char_indices() {
        match c {
            '{' => (depth, expects_name) = (depth + 1, depth == 0),
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => expects_name = depth == 1,
            c if c.is_whitespace() => {}
            _ if expects_name => {
                names.extend(name_at(at));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

/// A file without its module of tests and without comments, which may point anywhere. Lines keep their numbers.
fn product_code(text: &str) -> String {
    // The module of tests is the rest of its file: clippy refuses items after it.
    let product = text.find("#[cfg(test)]\nmod tests {").map_or(text, |start| &text[..start]);
    let code = product.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    code.flat_map(|line| [line, "\n"]).collect()
}

/// The files of `src` that are part of the program, by their path in the repository.
fn product_files() -> BTreeMap<String, String> {
    let mut files = Vec::new();
    let root = checkout();
    collect(&root.join("src"), &mut files);
    let files = files.into_iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    let is_rust = |path: &str| Path::new(path).extension().is_some_and(|extension| extension == "rs");
    let is_test = |path: &str| path.split('/').any(|part| matches!(part, "tests" | "tests.rs"));
    files
        .filter(|path| is_rust(path) && !is_test(path))
        .map(|path| {
            let text = product_code(&read(&path));
            (path, text)
        })
        .collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(checkout().join(path)).expect(path)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}
