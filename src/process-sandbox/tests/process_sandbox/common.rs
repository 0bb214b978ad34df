//! Programs in sandboxes, for the tests.

use std::fs;
use std::process::ExitStatus;
use std::time::Duration;

use sekisho_process_sandbox::{Applied, Grants, Home, Limits, Network, Profile, Request, Started, start};
use tokio::io::AsyncReadExt;

/// The helper process is a copy of this program, which has no `main` of its own: the function runs before the harness.
#[used]
#[expect(unsafe_code, reason = "there is no safe way to run before the harness")]
#[unsafe(link_section = ".init_array")]
static HELPER: extern "C" fn() = {
    extern "C" fn helper() {
        sekisho_process_sandbox::run_if_helper();
    }
    helper
};

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) status: ExitStatus,
    pub(crate) applied: Applied,
}

/// A program with its arguments, in the sandbox that its entry would have.
pub(crate) fn profile(program: &str, args: &[&str]) -> Profile {
    let path = std::env::var("PATH").unwrap();
    let home = std::env::home_dir().unwrap();
    let request = Request { program, args: args.to_vec(), path: &path, home: Some(&home), ..Request::default() };
    let grants = Grants::of(&request);
    Profile {
        program: grants.program.clone().unwrap(),
        args: args.iter().map(|argument| (*argument).to_owned()).collect(),
        env: vec![("PATH".into(), path.clone()), ("HOME".into(), home.to_str().unwrap().into())],
        cwd: home.clone(),
        home: Home { path: home.clone(), kept: None },
        packages: None,
        folders: grants.folders(),
        private: Vec::new(),
        network: Network::None,
        supervised: false,
        limits: Limits::default(),
        observed: false,
        without_namespaces: None,
    }
}

/// Runs a program to its end, without input.
pub(crate) async fn run(profile: &Profile) -> Ended {
    let Started { mut child, applied, guard: _guard, .. } = start(profile, false).await.unwrap();
    drop(child.stdin.take());
    let (mut output, mut errors) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reading = async {
        let (output, errors) = tokio::join!(stdout.read_to_string(&mut output), stderr.read_to_string(&mut errors));
        output.unwrap();
        errors.unwrap();
        child.wait().await.unwrap()
    };
    let status = tokio::time::timeout(Duration::from_secs(60), reading).await.unwrap();
    Ended { output, errors, status, applied }
}

/// Processes with this text in their environment or arguments, but this one.
pub(crate) fn running_with(mark: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let has_mark = |bytes: &[u8]| bytes.windows(mark.len()).any(|found| found == mark.as_bytes());
    let is_marked = |process: &fs::DirEntry| {
        let read = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
        process.file_name() != *std::process::id().to_string()
            && (has_mark(&read("environ")) || has_mark(&read("cmdline")))
    };
    processes.filter(is_marked).map(|process| process.path().display().to_string()).collect()
}
