use super::*;

fn parse(text: &str) -> Result<Option<PackageCommand>, UnsupportedCommand> {
    let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
    PackageCommand::parse(&words[0], &words[1..])
}

/// The command, its packages, its program where it is another, and the program's arguments.
const COMMANDS: [(&str, &str, Option<&str>, &str); 24] = [
    ("npx -y @a/server@1.2 /srv/files", "@a/server@1.2", None, "/srv/files"),
    ("npx a", "a", None, ""),
    ("/usr/bin/npx --yes --registry=https://r.test a -y", "a", None, "-y"),
    ("npx -p a -p b tool --flag", "a b", Some("tool"), "--flag"),
    ("npx -y -p a tool", "a", Some("tool"), ""),
    ("npm exec -- a b", "a", None, "b"),
    ("npm x a", "a", None, ""),
    ("npm exec a -- --flag", "a", None, "--flag"),
    ("npx a -- b", "a", None, "-- b"),
    ("uvx mcp-server-git --repository .", "mcp-server-git", None, "--repository ."),
    ("uvx --from a[cli]==1 tool x", "a[cli]==1", Some("tool"), "x"),
    ("uvx --python 3.12 --with b,c a@2.0", "a@2.0 b c", None, ""),
    ("uv tool run a b", "a", None, "b"),
    ("npm exec --package=a -- tool x", "a", Some("tool"), "x"),
    ("pnpm dlx @a/server@1.2 /srv/files", "@a/server@1.2", None, "/srv/files"),
    ("pnpx --package=a --package=b tool -x", "a b", Some("tool"), "-x"),
    ("/opt/pnpm dlx --allow-build=a --silent a", "a", None, ""),
    ("bunx -y a@2 -x", "a@2", None, "-x"),
    ("bunx --bun -p a tool", "a", Some("tool"), ""),
    ("bun x a b", "a", None, "b"),
    ("pipx run a==1.0 --flag", "a==1.0", None, "--flag"),
    ("pipx run --spec a[cli]==1 tool x", "a[cli]==1", Some("tool"), "x"),
    ("pipx run -q --python 3.12 -i https://r.test/simple a", "a", None, ""),
    ("uvx --from git+https://github.com/a/b tool", "git+https://github.com/a/b", Some("tool"), ""),
];

#[test]
fn packages_programs_and_arguments_are_told_apart() {
    for (text, packages, program, args) in COMMANDS {
        let command = parse(text).unwrap().unwrap_or_else(|| panic!("{text}"));
        let found = (command.packages.join(" "), command.program.as_deref(), command.args.join(" "));
        assert_eq!(found, (packages.to_owned(), program, args.to_owned()), "{text}");
    }
}

#[test]
fn other_commands_and_local_packages_are_left_as_they_are() {
    for text in [
        "node a.js",
        "npm start",
        "uv run a",
        "npx",
        "npx -y",
        "npx -p a",
        "uvx --with a",
        "npx ./a",
        "uvx --from /srv/a b",
        "npx file:a",
        "sh npx a",
        "pnpm exec a",
        "pnpm start",
        "bun run a.ts",
        "bun a.ts",
        "bunx ./a",
        "pipx run ./a.py",
        "pipx run a.py",
        "pipx install a",
        "npm start exec",
        "deno run a.ts",
        "go run ./cmd",
        "yarn start",
    ] {
        assert_eq!(parse(text), Ok(None), "{text}");
    }
}

#[test]
fn an_unknown_option_is_named() {
    for (text, option) in [("npx -c a", "-c"), ("uvx --env-file .env a", "--env-file"), ("npx --package", "--package")]
    {
        let error = parse(text).unwrap_err();
        assert!(matches!(&error, UnsupportedCommand::Option { option: named, .. } if named == option), "{error}");
        assert!(error.to_string().contains(option), "{error}");
    }
}

#[test]
fn other_forms_that_fetch_packages_are_named() {
    for text in [
        "yarn dlx a",
        "pnpm --package=a dlx tool",
        "npm --yes exec a",
        "uv --offline tool run a",
        "pipx --verbose run a",
        "pipx run https://a.test/b.py",
        "bun --silent x a",
        "deno run -A npm:a",
        "deno run https://a.test/b.ts",
        "go run a.test/b@latest",
        "dnx a",
        "dotnet dnx a",
    ] {
        let error = parse(text).unwrap_err();
        assert!(matches!(&error, UnsupportedCommand::Form { .. }), "{text}: {error}");
        assert!(error.to_string().contains("tools.lock"), "{error}");
    }
}

#[test]
fn the_installer_gets_packages_as_it_reads_them() {
    let steps = |text: &str| -> Vec<_> {
        let steps = parse(text).unwrap().unwrap().steps().into_iter();
        steps
            .map(|step| step.program.into_iter().map(str::to_owned).chain(step.args).collect::<Vec<_>>().join(" "))
            .collect()
    };
    let npm = "install --no-audit --no-fund --no-update-notifier --omit=dev";
    assert_eq!(steps("npx --registry https://r.test a@1"), [format!("{npm} --registry https://r.test -- a@1")]);
    let uv = [
        "venv --allow-existing --relocatable --no-project --no-config . --python 3.12",
        "pip install --no-config --python bin/python -- a==1 b",
    ];
    assert_eq!(steps("uvx -p 3.12 --with b a@1"), uv);
    let pnpm = "add --save-prod --reporter=append-only --config.strict-dep-builds=false";
    assert_eq!(
        steps("pnpm dlx --allow-build=b --registry https://r.test a@1"),
        [format!("{pnpm} --allow-build=b --registry https://r.test a@1")]
    );
    assert_eq!(steps("bunx a@1"), ["add --no-progress --no-summary a@1"]);
    let pip = [
        "-m venv .",
        "bin/python -m pip install --no-compile --no-input --disable-pip-version-check -i https://r.test -- a==1",
    ];
    assert_eq!(steps("pipx run -i https://r.test a==1"), pip);
    assert!(steps("uvx a@latest")[1].ends_with("-- a"));
    assert!(steps("uvx --from git+https://a.test/b@v1 c")[1].ends_with("-- git+https://a.test/b@v1"));
}

#[test]
fn the_installer_is_the_runners_own_or_the_python_that_is_named() {
    for (text, installer, is_beside) in [
        ("npx a", "npm", true),
        ("pnpx a", "pnpm", true),
        ("bunx a", "bun", true),
        ("uvx -p 3.12 a", "uv", true),
        ("pipx run a", "python3", false),
        ("pipx run --python 3.12 a", "python3.12", false),
        ("pipx run --python /opt/python a", "/opt/python", false),
    ] {
        let command = parse(text).unwrap().unwrap();
        assert_eq!((&*command.installer(), command.is_installer_beside()), (installer, is_beside), "{text}");
    }
}

#[test]
fn only_registries_and_named_repositories_are_reached() {
    let hosts = |text: &str| parse(text).unwrap().unwrap().hosts();
    assert_eq!(hosts("npx a"), ["registry.npmjs.org"]);
    assert_eq!(hosts("uvx a"), ["pypi.org", "files.pythonhosted.org"]);
    assert_eq!(hosts("npx github:a/b"), ["registry.npmjs.org", "github.com", "codeload.github.com"]);
    assert_eq!(hosts("npx git+https://me@git.test:8443/a")[1..], ["git.test"]);
}

#[test]
fn the_installer_gets_its_own_variables_and_no_secrets() {
    for (name, expected) in [
        ("npm_config_registry", true),
        ("UV_DEFAULT_INDEX", true),
        ("BUN_CONFIG_REGISTRY", true),
        ("pnpm_config_registry", true),
        ("PIP_INDEX_URL", true),
        ("HTTPS_PROXY", true),
        ("API_KEY", false),
        ("GITHUB_TOKEN", false),
        ("NODE_OPTIONS", false),
        ("HOME", false),
    ] {
        assert_eq!(PackageCommand::has_variable(name), expected, "{name}");
    }
}

#[test]
fn only_the_arguments_of_the_program_leave_the_key_as_it_was() {
    let key = |text: &str| parse(text).unwrap().unwrap().key();
    assert_eq!(key("npx a@1 x"), key("npx -y a@1 y"));
    for other in [
        "npx a@2 x",
        "uvx a@1 x",
        "pnpx a@1 x",
        "bunx a@1 x",
        "pipx run a@1 x",
        "npx -p a@1 x",
        "npx --registry https://r.test a@1 x",
    ] {
        assert_ne!(key("npx a@1 x"), key(other), "{other}");
    }
    let mut elsewhere = parse("npx a@1 x").unwrap().unwrap();
    elsewhere.variables.insert("npm_config_registry".to_owned(), "https://r.test".to_owned());
    assert_ne!(elsewhere.key(), key("npx a@1 x"), "another registry");
}

#[test]
fn an_option_of_the_installer_keeps_its_value() {
    let command = parse("npx --ignore-scripts=false --force a").unwrap().unwrap();
    assert_eq!(command.options, ["--ignore-scripts=false", "--force"]);
}

#[test]
fn the_password_of_a_repository_is_not_shown() {
    let command = parse("uvx --from git+https://ann:secret@git.test/a@v1 --with b c").unwrap().unwrap();
    assert_eq!(command.shown(), "git+https://git.test/a@v1 b");
}
