//! Values that packages give to the code of a run.

use super::*;

/// In place of an interpreter's own conversions: durations are numbers of seconds.
const CONVERSIONS: &str =
    "import datetime, sys\nsys._sekisho_conversions = {datetime.timedelta: lambda value: value.total_seconds()}\n";

#[test]
fn values_of_packages_are_converted_in_all_code_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("helper.py"), "import datetime as dt\nday = dt.timedelta(1)\n").unwrap();
    let import = format!("import datetime as dt, sys, types\nsys.path.insert(0, {:?})\n", folder.path());
    let cases = [
        ("dt.timedelta(1)", json!(86_400.0)),
        ("dt.timedelta.resolution", json!(1e-6)),
        ("[dt.timedelta(1) for _ in 'ab']", json!([86_400.0, 86_400.0])),
        ("list(map(dt.timedelta, [1]))", json!([86_400.0])),
        ("dict.fromkeys('a', [dt.timedelta(1)])", json!({"a": [86_400.0]})),
        ("(lambda: dt.timedelta(1))()", json!(86_400.0)),
        ("def day(n):\n    return dt.timedelta(n)\nday(2)", json!(172_800.0)),
        ("import helper\nhelper.day", json!(86_400.0)),
        ("scope = {'dt': dt}\nexec('day = dt.timedelta(1)', scope)\nscope['day']", json!(86_400.0)),
        ("exec('day = dt.timedelta(1)')\nday", json!(86_400.0)),
        ("exec(compile('day = dt.timedelta(1)', 'text', 'exec'))\nday", json!(86_400.0)),
        (
            "scope = {'__builtins__': {}, 'dt': dt}\nexec(compile('day = dt.timedelta(1)', 'text', 'exec'), scope)\nscope['day']",
            json!(86_400.0),
        ),
        ("scope = {}\nexec(compile('day = 1', 'text', 'exec'), dict(), scope)\nscope['day']", json!(1)),
        ("eval(str('day') + '[0]', dict(day=[dt.timedelta(1)]))", json!(86_400.0)),
        ("from datetime import timedelta\nexec(''.join(['day = 1']), globals(), globals())\nday", json!(1)),
        ("type(eval(' [dt.timedelta(1)][0]')).__name__", json!("float")),
        ("eval('x + 1', {'__builtins__': {}}, {'x': 1})", json!(2)),
        ("try:\n    eval('1 +')\nexcept SyntaxError as error:\n    name = error.filename\nname", json!("<string>")),
        // What is changed in place is no copy.
        ("box = types.SimpleNamespace(parts=[0])\nbox.parts[0] = 1\nbox.parts", json!([1])),
        ("parts = []\nparts.append(parts)\nlen((lambda: parts)())", json!(1)),
        ("def f(day: dt.timedelta): pass\nlist(f.__annotations__)", json!(["day"])),
        ("match 1:\n    case dt.MINYEAR:\n        found = 1\nfound", json!(1)),
        ("'a' 'b'.upper()", json!("AB")),
    ];
    for (code, expected) in cases {
        let ran = run_after(&[CONVERSIONS, &prelude()].concat(), &[&import, code].concat(), 256 << 10);
        assert_eq!(ran.result(), expected, "{code}: {} {}", ran.end(), ran.stderr());
    }
}
