use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A machine in a folder: a home, a state directory elsewhere, programs and files. Neither has the other, so that each is
/// refused for its own reason.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for folder in [
            "home/docs/deep",
            "home/.ssh",
            "var/state",
            "home/project/dist",
            "home/.nvm/versions/node/bin",
            "home/.local/bin",
            "home/.local/share/uv/tools/tool/bin",
            "home/.local/share/uv/python/cpython/bin",
            "home/bin",
            "opt/suite/bin",
            "data",
        ] {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        for (file, text) in [
            ("home/.ssh/id", "key"),
            ("home/notes.txt", "notes"),
            ("home/own.db", "database"),
            ("home/project/package.json", "{}"),
            ("home/project/dist/server.js", "code"),
            ("data/a.sqlite", "database"),
            ("data/script.py", "code"),
            ("data/ca.pem", "certificate"),
        ] {
            fs::write(machine.path(file), text).unwrap();
        }
        for program in ["home/.nvm/versions/node/bin/node", "home/bin/own", "opt/suite/bin/suite"] {
            machine.program(program, "binary");
        }
        machine.program("home/.local/share/uv/python/cpython/bin/python3", "binary");
        let python = machine.path("home/.local/share/uv/tools/tool/bin/python");
        symlink(machine.path("home/.local/share/uv/python/cpython/bin/python3"), &python).unwrap();
        machine.program("home/.local/share/uv/tools/tool/bin/tool", &format!("#!{}\n", python.display()));
        symlink(machine.path("home/.local/share/uv/tools/tool/bin/tool"), machine.path("home/.local/bin/tool"))
            .unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A text in which `@` is the machine's root.
    fn text(&self, text: &str) -> String {
        text.replace('@', self.path("").to_str().unwrap().trim_end_matches('/'))
    }

    /// What an entry with these arguments and variables is granted: paths with `=` where they are writable, without the folders of
    /// programs in `PATH`; and the refused paths.
    fn granted(&self, program: &str, args: &[&str], env: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let texts = |texts: &[&str]| texts.iter().map(|text| self.text(text)).collect::<Vec<_>>();
        let (program, args) = (self.text(program), texts(args));
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, self.text(value))).collect();
        let (home, state, path) = (self.path("home"), self.path("var/state"), self.text("@/home/bin:@/opt/suite/bin"));
        let grants = Grants::of(&Request {
            program: &program,
            args: args.iter().map(String::as_str).collect(),
            env: env.iter().map(|(name, value)| (*name, value.as_str())).collect(),
            path: &path,
            home: Some(&home),
            private: vec![&state],
            ..Request::default()
        });
        let root = self.path("");
        let shown = |path: &Path| format!("/{}", path.strip_prefix(&root).unwrap_or(path).display());
        let of_path = |grant: &&Grant| !matches!(grant.reason, Reason::SearchPath | Reason::Downloaded);
        let granted = grants.granted.iter().filter(of_path);
        let granted = granted.map(|grant| format!("{}{}", if grant.write { "=" } else { "" }, shown(&grant.path)));
        (granted.collect(), grants.refused.iter().map(|(path, _)| shown(path)).collect())
    }
}

#[test]
fn what_an_entry_names_is_granted_and_nothing_that_holds_the_home_or_the_state() {
    let machine = Machine::new();
    let none: &[&str] = &[];
    for (args, granted, refused) in [
        (&["@/home/docs"][..], &["=/home/docs"][..], none),
        (&["--root=@/home/docs", "plain", "-v", "@/missing/deep"], &["=/home/docs"], none),
        (&["~/docs"], &["=/home/docs"], none),
        (&["file://@/home/docs"], &["=/home/docs"], none),
        (&["@/home/notes.txt"], &["=/home/notes.txt"], none),
        // What other programs trust.
        (&["@/home/.ssh/id", "@/data/ca.pem"], &["/data/ca.pem", "/home/.ssh/id"], none),
        // A database writes files beside itself; in the home itself it has only its own.
        (&["sqlite:///@/data/a.sqlite"], &["=/data"], none),
        (&["@/home/own.db"], &["=/home/own.db"], none),
        // A file that will be written.
        (&["--log", "@/home/docs/new.log"], &["=/home/docs"], none),
        // A script's project, which it may not change.
        (&["@/home/project/dist/server.js"], &["/home/project", "/home/project/dist/server.js"], none),
        (&["@/data/script.py"], &["/data", "/data/script.py"], none),
        (&["@/home"], &[], &["/home"]),
        (&["@/home/new.log"], &[], &["/home"]),
        (&["@/"], &[], &["/"]),
        (&["@/var/state"], &[], &["/var/state"]),
        (&["@/home/docs/../../var/state"], &[], &["/home/docs/../../var/state"]),
        (&["@/var"], &[], &["/var"]),
        (&["/", "/proc/self", "/dev/null"], &[], &["//", "//proc/self", "//dev/null"]),
    ] {
        let expected =
            (granted.iter().map(ToString::to_string).collect(), refused.iter().map(ToString::to_string).collect());
        assert_eq!(machine.granted("own-program", args, &[]), expected, "{args:?}");
    }
    let env =
        [("DATA", "@/home/docs"), ("LIST", "@/data:@/home/docs/deep"), ("PATH", "@/home/.ssh"), ("LEVEL", "debug")];
    let (granted, refused) = machine.granted("own-program", &[], &env);
    assert_eq!(
        (granted, refused.len()),
        (["=/data", "=/home/docs", "=/home/docs/deep"].map(str::to_owned).to_vec(), 0)
    );
}

/// Relative to the folder in which the program starts.
#[test]
fn relative_paths_are_of_the_working_folder() {
    let machine = Machine::new();
    let home = machine.path("home");
    // The paths of the argument, without the working folder; and how many are refused.
    let granted = |cwd: Option<&Path>, argument: &str| {
        let request = Request { program: "own", args: vec![argument], home: Some(&home), cwd, ..Request::default() };
        let grants = Grants::of(&request);
        let of_argument = grants.granted.into_iter().filter(|grant| grant.reason == Reason::Argument);
        (of_argument.map(|grant| grant.path).collect::<Vec<_>>(), grants.refused.len(), grants.cwd)
    };
    let data = machine.path("data");
    for (named, path) in [
        ("../home/docs", Some("home/docs")),
        ("../home/docs/new.txt", Some("home/docs")),
        ("../home/notes.txt", Some("home/notes.txt")),
        ("../missing/new.txt", None),
        // In the working folder, which the program has anyway.
        ("./a.sqlite", None),
        ("new.db", None),
        ("script", None),
        ("gpt-4.1", None),
        ("https://example.com/a.json", None),
        ("@scope/name", None),
    ] {
        let paths = path.into_iter().map(|path| machine.path(path)).collect();
        assert_eq!(granted(Some(&data), named), (paths, 0, Some(data.clone())), "{named}");
    }
    // The home is not granted as a working folder, so that each argument counts for itself.
    for (named, path, refused) in [
        ("./docs", Some("home/docs"), 1),
        ("docs/new.txt", Some("home/docs"), 1),
        ("./own.db", Some("home/own.db"), 1),
        ("own.db", Some("home/own.db"), 1),
        ("notes.txt", Some("home/notes.txt"), 1),
        ("new.db", None, 2),
        ("new.txt", None, 1),
        ("docs", None, 1),
    ] {
        let paths = path.into_iter().map(|path| machine.path(path)).collect();
        assert_eq!(granted(Some(&home), named), (paths, refused, Some(home.clone())), "{named}");
    }
    // Without a working folder it is that of the gateway, and the program starts there.
    let own = std::env::current_dir().unwrap();
    assert_eq!(granted(None, "./Cargo.toml"), (vec![own.join("Cargo.toml")], 0, Some(own)));
    assert_eq!(granted(None, "plain"), (Vec::new(), 0, None));
}

#[test]
fn a_link_to_something_private_is_refused() {
    let machine = Machine::new();
    symlink(machine.path("var/state"), machine.path("home/docs/link")).unwrap();
    let refused = machine.granted("own-program", &["@/home/docs/link"], &[]);
    assert_eq!(refused, (Vec::new(), vec!["/home/docs/link".to_owned()]));
}

/// A program that could write it would choose its own rights.
#[test]
fn a_folder_with_the_configuration_is_read_only_unless_it_is_configured() {
    let machine = Machine::new();
    let (folder, file) = (machine.path("home/project"), machine.path("home/project/dist/server.js"));
    let granted = |folders: Vec<Folder>| {
        let request = Request { program: "own", cwd: Some(&folder), folders, path: "/usr/bin", ..Request::default() };
        let grants = Grants::of(&Request { governing: vec![&file], ..request });
        (grants.folders().first().map(|folder| folder.write), grants.refused.len())
    };
    assert_eq!(granted(Vec::new()), (Some(false), 1));
    assert_eq!(granted(vec![Folder::new(folder.clone(), true)]).0, Some(true));
    let request = Request { program: "own", args: vec!["dist/server.js"], cwd: Some(&folder), ..Request::default() };
    let refused = Grants::of(&Request { hidden: vec![&file], ..request }).refused;
    assert_eq!(refused, [(file, "it is a file of the gateway")]);
}

/// Traps that a program left when it ran before, in folders that it may write: links, and the first line of a script.
#[test]
fn a_program_grants_itself_nothing() {
    let machine = Machine::new();
    let (home, cwd, data) = (machine.path("home"), machine.path("home/project"), machine.path("data"));
    fs::create_dir(machine.path("home/project/bin")).unwrap();
    for name in ["link", "new.db", "data.log", "server.py", "bin/python"] {
        symlink(machine.path("home/.ssh"), cwd.join(name)).unwrap();
    }
    symlink(machine.path("home/.ssh/id"), cwd.join("key.py")).unwrap();
    symlink(machine.path("home/.ssh"), data.join("own.db")).unwrap();
    machine.program("home/project/run", &format!("#!{}\n", machine.path("home/.ssh/id").display()));
    let granted = |program: &str, argument: &str, cwd: Option<&Path>, folders: Vec<Folder>| {
        let args = vec![argument];
        let request =
            Request { program, args, home: Some(&home), cwd, folders, path: "/usr/bin", ..Request::default() };
        let grants = Grants::of(&request);
        let is_secret = |grant: &&Grant| grant.real.starts_with(home.join(".ssh"));
        (grants.granted.iter().filter(is_secret).count(), !grants.refused.is_empty())
    };
    for argument in ["./link", "link/", "new.db", "--log=./data.log", "./server.py", "./key.py", "bin/python"] {
        assert_eq!(granted("own", argument, Some(&cwd), Vec::new()), (0, true), "{argument}");
    }
    let database = machine.text("sqlite:///@/data/own.db");
    assert_eq!(granted("own", &database, None, Vec::new()), (0, true));
    let folders = || vec![Folder::new(cwd.clone(), true), Folder::new(cwd.join("link"), false)];
    assert_eq!(granted("own", "", None, folders()), (0, true));
    for program in ["./run", "./key.py", "bin/python/id"] {
        assert_eq!(granted(program, "", Some(&cwd), Vec::new()).0, 0, "{program}");
    }
    // A link of somebody else.
    symlink(machine.path("home/docs"), machine.path("opt/docs")).unwrap();
    let (granted, refused) = machine.granted("own-program", &["@/opt/docs"], &[]);
    assert_eq!((granted, refused.len()), (vec!["=/opt/docs".to_owned()], 0));
}

#[test]
fn a_virtual_environment_has_its_interpreter() {
    let machine = Machine::new();
    let (home, cwd) = (machine.path("home"), machine.path("home/project"));
    fs::create_dir_all(cwd.join(".venv/bin")).unwrap();
    let python = machine.path("home/.local/share/uv/python/cpython/bin/python3");
    symlink(&python, cwd.join(".venv/bin/python")).unwrap();
    for (program, args) in [(".venv/bin/python", vec!["server.py"]), ("env", vec![".venv/bin/python"])] {
        let request = Request { program, args, home: Some(&home), path: "/usr/bin", ..Request::default() };
        let grants = Grants::of(&Request { cwd: Some(&cwd), ..request });
        assert!(grants.granted.iter().any(|grant| python.starts_with(&grant.path)), "{:?}", grants.granted);
        assert_eq!(grants.refused, [], "{program}");
    }
}

#[test]
fn a_program_has_the_folders_that_it_is_made_of() {
    let machine = Machine::new();
    let granted = |program: &str| machine.granted(program, &[], &[]).0;
    assert_eq!(granted("@/home/.nvm/versions/node/bin/node"), ["/home/.nvm"]);
    assert_eq!(granted("@/opt/suite/bin/suite"), ["/opt/suite"]);
    // Not the home above `bin`.
    assert_eq!(granted("own"), ["/home/bin"]);
    // A link to a script, whose interpreter is a link.
    let tool = ["/home/.local/bin", "/home/.local/share/uv/python", "/home/.local/share/uv/tools"];
    assert_eq!(granted("@/home/.local/bin/tool"), tool);
    assert_eq!(granted("missing"), [""; 0]);
}

/// Profiles of browsers are beside the browsers.
#[test]
fn downloaded_programs_are_granted_one_by_one() {
    let machine = Machine::new();
    let folders = ["chromium-1187", "chromium_headless_shell-1187", "mcp-chrome-1234567", "mcp-chrome-profile", "b"];
    for folder in folders.map(|name| format!("home/.cache/ms-playwright/{name}")) {
        fs::create_dir_all(machine.path(&folder)).unwrap();
    }
    for folder in ["home/.cache/puppeteer/chrome", "home/.local/share/uv/tools/.tmp"] {
        fs::create_dir_all(machine.path(folder)).unwrap();
    }
    let home = machine.path("home");
    let grants = Grants::of(&Request { program: "sh", path: "/bin", home: Some(&home), ..Request::default() });
    let downloaded = grants.granted.iter().filter(|grant| grant.reason == Reason::Downloaded);
    let downloaded = downloaded.map(|grant| grant.path.strip_prefix(&home).unwrap().to_str().unwrap());
    let expected = [
        ".cache/ms-playwright/chromium-1187",
        ".cache/ms-playwright/chromium_headless_shell-1187",
        ".cache/puppeteer/chrome",
        ".local/share/uv/python/cpython",
        ".local/share/uv/tools/tool",
    ];
    assert_eq!(downloaded.collect::<Vec<_>>(), expected);
}
