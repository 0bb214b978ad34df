use super::*;
use sekisho_config::Secret;

fn settings(command: &str, args: &[&str]) -> McpServerSettings {
    let args = args.iter().map(|argument| (*argument).to_owned()).collect();
    McpServerSettings { command: Some(command.to_owned()), args, ..McpServerSettings::default() }
}

#[test]
fn a_program_that_asks_a_service_is_refused_with_the_reason() {
    for program in ["docker", "/usr/bin/podman"] {
        let refused = granted(&settings(program, &["run", "image"]), &Config::default()).unwrap().unwrap_err();
        assert!(refused.contains("`sandbox: off`"), "{refused}");
    }
    let off = McpServerSettings { sandbox: McpSandbox::Off, ..settings("docker", &[]) };
    assert_eq!(granted(&off, &Config::default()), None);
}

#[test]
fn named_folders_are_granted_and_the_state_directory_is_not() {
    let folder = tempfile_folder("granted");
    let state = folder.join("state");
    let files = folder.join("files");
    for made in [&state, &files] {
        fs::create_dir_all(made).unwrap();
    }
    let config = Config { state_directory: Some(state.clone()), ..Config::default() };
    let named = |path: &Path| granted(&settings("sh", &[path.to_str().unwrap()]), &config).unwrap().unwrap();
    let lines = named(&files);
    assert!(lines.contains(&format!("{}: writable (in `args`)", files.display())), "{lines}");
    for private in [&state, &folder] {
        let lines = named(private);
        assert!(lines.contains(&format!("{}: not granted, it belongs to the gateway", private.display())), "{lines}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_says_what_programs_may_do_is_not_writable_and_is_hidden() {
    let folder = tempfile_folder("governed");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sekisho.yaml");
    fs::write(&file, "server: {}").unwrap();
    let config = Config { file: Some(file.clone()), ..Config::default() };
    let lines = granted(&settings("sh", &[folder.to_str().unwrap()]), &config).unwrap().unwrap();
    assert!(lines.contains(&format!("{}: readable", folder.display())), "{lines}");
    assert!(lines.contains("`sandbox.folders` with `write: true`"), "{lines}");
    let own = OwnFiles::of(&config);
    for hidden in [file, folder.join(".env"), folder.join("tools.lock")] {
        assert!(own.hidden.contains(&hidden), "{}", hidden.display());
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_home_that_is_hidden_is_at_another_path() {
    let folder = tempfile_folder("home");
    fs::create_dir_all(folder.join("state")).unwrap();
    let folder = folder.canonicalize().unwrap();
    let state = folder.join("state");
    let own = OwnFiles::of(&Config { state_directory: Some(state.clone()), ..Config::default() });
    for (home, at) in [
        (folder.clone(), folder.clone()),
        (state.clone(), OTHER_HOME.into()),
        (state.join("below"), OTHER_HOME.into()),
        ("/usr/lib".into(), OTHER_HOME.into()),
    ] {
        assert_eq!(own.home_of_program(Some(home.clone())), at, "{}", home.display());
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_entrys_variables_replace_those_of_the_gateway() {
    let env = [("HOME".to_owned(), Secret::new("/srv/home")), ("OWN".to_owned(), Secret::new("own"))];
    let settings = McpServerSettings { env: env.into(), ..settings("sh", &[]) };
    let variables: BTreeMap<_, _> = super::variables(&settings, Path::new("/home/a")).into_iter().collect();
    assert_eq!((&*variables["HOME"], &*variables["OWN"]), ("/srv/home", "own"));
    let inherited = super::variables(&McpServerSettings::default(), Path::new("/home/a"));
    assert!(inherited.contains(&("HOME".to_owned(), "/home/a".to_owned())));
    assert!(!inherited.iter().any(|(name, _)| name == "TMPDIR"));
}

fn tempfile_folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sekisho-sandbox-{name}-{}", std::process::id()))
}
