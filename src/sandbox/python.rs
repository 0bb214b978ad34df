//! The Python that runs inside: source texts, and how they come to be modules there.

/// Puts the harness into an interpreter, once for a snapshot or before the first program.
///
/// Its modules have names that no program imports by accident; a program that goes looking for them finds
/// only its own instance's copy.
pub(super) fn prelude() -> String {
    let install_loop = "import sys\nsys.modules['_sekisho_event_loop'].install()\n";
    let wait = "sys.modules['_sekisho_harness'].wait_for_turn(sys.modules['_sekisho_encode'].encode)\n";
    [&installed(&[ENCODE, EVENT_LOOP, HARNESS]), install_loop, wait].concat()
}

/// All that a command runs, for its `-c`: the harness, with a door of files, and the one turn. Without the event
/// loop, whose import alone takes longer than most programs.
pub(super) fn command() -> String {
    [include_str!("python/file_door.py"), &installed(&[ENCODE, HARNESS]), RUN].concat()
}

/// Before a snapshot is taken, and after the prelude.
pub(super) const REHEARSAL: &str =
    "import sys\nsys.modules['_sekisho_harness'].rehearse(sys.modules['_sekisho_encode'].encode)\n";

/// Runs the one program of an instance, after the prelude. The program itself comes by the door.
///
/// A value to be shown, in whose place the harness runs the program: nothing costs less to compile, and this is
/// compiled anew for each instance.
pub(super) const TURN: &str = "0\n";

/// The same for a command, which has nothing compiled before.
const RUN: &str = "import sys\nsys.modules['_sekisho_harness'].run(sys.modules['_sekisho_encode'].encode)\n";

/// A name, and a source text.
type Module = (&'static str, &'static str);

const ENCODE: Module = ("_sekisho_encode", include_str!("python/encode.py"));
const EVENT_LOOP: Module = ("_sekisho_event_loop", include_str!("python/event_loop.py"));
const HARNESS: Module = ("_sekisho_harness", include_str!("python/harness.py"));

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

/// A text as Python source: of JSON's escapes, each means the same there.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
