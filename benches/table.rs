//! The table of `scripts/bench`: reads criterion's results, then measures the server and the bare echo server in turns,
//! and prints each number beside its goal.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement stops at the first surprise"
)]

mod agents;
mod call_index;
mod console;
mod conversations;
mod fairness;
mod guards;
mod replicas;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use self::agents::Models;
use self::conversations::{Load, Talks};
use self::fairness::Upstream;
use self::replicas::Database;

const CONFIG: &str = "config/bench.yaml";
const LOAD_ROUNDS: usize = 5;
const LOAD_SECONDS: u64 = 4;
const STARTS: usize = 15;

fn main() {
    // `cargo test --benches` runs this too; it measures only with `--bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let programs =
        PathBuf::from(std::env::var_os("SEKISHO_PROGRAMS").expect("SEKISHO_PROGRAMS names the release folder"));
    if std::env::args().any(|argument| argument == "agents") {
        return agent_rows(&programs);
    }
    if std::env::args().any(|argument| argument == "console") {
        return console_rows(&programs);
    }
    if std::env::args().any(|argument| argument == "replicas") {
        return replica_rows(&programs);
    }
    if std::env::args().any(|argument| argument == "index") {
        return call_index::rows(10_000_000);
    }
    if std::env::args().any(|argument| argument == "guards") {
        return guards::rows(&programs);
    }
    if let Some(load) = load_of_arguments() {
        return conversation_rows(&programs, load);
    }
    let config_hash = Sha256::digest(std::fs::read(CONFIG).unwrap());
    println!("configuration {CONFIG}, SHA-256 {}", hex::encode(&config_hash[..8]));
    println!("{:<58} {:>16}   goal", "what", "measured");
    pipeline_rows(&programs);
    http_rows(&programs);
    guards::rows(&programs);
    fairness_rows(&programs);
    agent_rows(&programs);
    console_rows(&programs);
    call_index::rows(1_000_000);
    conversation_rows(&programs, Load { conversations: 200, time: Duration::from_secs(60) });
    row(
        "start to first answer",
        &format!("{:.0} ms", median((0..STARTS).map(|_| start_millis(&programs)))),
        "≤ 150 ms",
    );
    let (seconds, megabytes) = import_github(&programs);
    row("import of GitHub's OpenAPI document (7 MB, 1 223 operations)", &format!("{seconds:.2} s"), "≤ 1.5 s");
    row("  memory at its peak", &format!("{megabytes:.0} MB"), "≤ 300 MB");
}

/// The figures of criterion, in the folder beside the programs.
fn pipeline_rows(programs: &Path) {
    let criterion = programs.join("../criterion");
    let micros = |name: &str| criterion_median(&criterion, name);
    row(
        "pipeline, decision evaluated (reads the arguments)",
        &format!("{:.1} µs", micros("call, decision evaluated")),
        "≤ 25 µs",
    );
    row("pipeline, decision cached", &format!("{:.1} µs", micros("call, decision cached")), "≤ 8 µs");
    row(
        "  evaluated for the form that is sent",
        &format!("{:.1} µs", micros("call, decision evaluated, sent form")),
        "",
    );
    row("the call that is sent, built", &format!("{:.2} µs", micros("sent call")), "");
    let digest = micros("sent call, digest");
    row("  with its digest", &format!("{digest:.1} µs"), "");
    let of_call = 100.0 * digest / guards::call_micros(programs);
    row("  of the processor time of a call over HTTP", &format!("{of_call:.1} %"), "≤ +3 %");
    for refusal in ["refused 429", "refused 403", "refused 503 open circuit"] {
        row(refusal, &format!("{:.1} µs", micros(refusal)), "cheaper than a success");
    }
    row("a unit of a share, taken and given back", &format!("{:.2} µs", micros("share")), "≤ 1 µs a call");
    row("detectors of guards, an answer of 2 kB without a finding", &format!("{:.1} µs", micros("guards")), "≤ 5 µs");
    row("the profile for 4.5 KB of Python chosen", &format!("{:.1} µs", micros("profile chosen")), "microseconds");
}

/// The median time of three imports, and the largest memory of any.
fn import_github(programs: &Path) -> (f64, f64) {
    let folder = TempDir::new().unwrap();
    let document = folder.path().join("github.json");
    let packed = std::fs::File::open("tests/openapi/github-api.min.json.gz").unwrap();
    let mut unpacked = std::fs::File::create(&document).unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut unpacked).unwrap();
    let mut peak = 0.0_f64;
    let seconds = median((0..3).map(|_| {
        let started = Instant::now();
        let mut import = Command::new(programs.join("sekisho"));
        import.args(["--json", "import", "openapi"]).arg(&document).stdout(Stdio::null());
        let mut child = Stopped(import.spawn().unwrap());
        loop {
            peak = peak.max(peak_megabytes(&child.0).unwrap_or_default());
            if let Some(status) = child.0.try_wait().unwrap() {
                assert!(status.success(), "the document was not imported");
                return started.elapsed().as_secs_f64();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }));
    (seconds, peak)
}

/// The peak memory of a process; `None` once it has exited.
fn peak_megabytes(child: &Child) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? / 1_024.0)
}

fn http_rows(programs: &Path) {
    let state = TempDir::new().unwrap();
    let sekisho = Sekisho::start(programs, state.path(), Path::new(CONFIG));
    // The code of the start is released after five seconds.
    std::thread::sleep(Duration::from_secs(7));
    row("resident memory, idle", &format!("{:.1} MB", sekisho.resident_megabytes()), "≤ 45 MB");
    let echo_port = "18090";
    let echo = Command::new(programs.join("examples/bare_echo")).arg(echo_port).spawn().unwrap();
    let echo = Stopped(echo);
    let echo_url = format!("http://127.0.0.1:{echo_port}");
    wait_for(&echo_url);
    let mut ratios = Vec::new();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..LOAD_ROUNDS {
        bare.push(requests_a_second(&echo_url));
        ours.push(requests_a_second(&sekisho.url));
        ratios.push(ours[ours.len() - 1] / bare[bare.len() - 1]);
    }
    drop(echo);
    row("bare axum echo", &format!("{:.0}/s", median(bare)), "");
    row("POST /tools/calculator/execute", &format!("{:.0}/s", median(ours)), "");
    row("  of the bare echo's", &format!("{:.0} %", 100.0 * median(ratios)), "≥ 70 %");
    row("resident memory, after the load", &format!("{:.1} MB", sekisho.resident_megabytes()), "");
}

fn fairness_rows(programs: &Path) {
    let state = TempDir::new().unwrap();
    let upstream = Upstream::serve();
    let config = state.path().join("fairness.yaml");
    std::fs::write(&config, upstream.config(state.path())).unwrap();
    let sekisho = Sekisho::start(programs, state.path(), &config);
    let measured = upstream.measure(&sekisho.url);
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
    row("p99 of a call of 20 ms, its caller alone", &format!("{:.1} ms", millis(measured.alone)), "");
    row("  while another caller has 256 under way", &format!("{:.1} ms", millis(measured.beside_flood)), "");
    let times = millis(measured.beside_flood) / millis(measured.alone);
    row("  times that of the caller alone", &format!("{times:.2}"), "≤ 2");
}

fn agent_rows(programs: &Path) {
    let state = TempDir::new().unwrap();
    let models = Models::serve();
    let config = state.path().join("agents.yaml");
    std::fs::write(&config, std::fs::read_to_string(CONFIG).unwrap() + &models.agents()).unwrap();
    let sekisho = Sekisho::start(programs, state.path(), &config);
    let mut firsts = models.first_pieces(&sekisho.url);
    firsts.sort_by(f64::total_cmp);
    let percentile = |hundredths: usize| firsts[firsts.len() * hundredths / 100];
    let first = "an agent's first piece, from the model to the client";
    row(first, &format!("{:.2} ms", percentile(50)), "≤ 5 ms");
    row("  the slowest of a hundred", &format!("{:.2} ms", percentile(99)), "≤ 5 ms");
    let crowd = models.crowd(&sekisho.url);
    let peak = peak_megabytes(&sekisho.child.0).unwrap();
    row("500 agents' concurrent streams: complete", &crowd.whole.to_string(), "500");
    row("  memory at its peak", &format!("{peak:.0} MB"), "≤ 200 MB");
    let millis = |wait: Duration| format!("{:.0} ms", wait.as_secs_f64() * 1_000.0);
    row("  between two pieces, sent every 100 ms", &millis(crowd.wait(50)), "100 ms");
    row("  the longest of a hundred waits", &millis(crowd.wait(99)), "no stall");
    row("  the longest of all", &millis(crowd.wait(100)), "no stall");
}

fn console_rows(programs: &Path) {
    let state = TempDir::new().unwrap();
    let api = console::Api::serve();
    let config = state.path().join("console.yaml");
    std::fs::write(&config, api.config(state.path())).unwrap();
    let sekisho = Sekisho::start(programs, state.path(), &config);
    let viewers = api.measure(&sekisho.url, sekisho.child.0.id());
    let millis = |time: f64| format!("{time:.0} ms");
    row("the overview open, 2 000 tools, 1 000 calls a second", &millis(viewers.one), "≤ 20 ms a second");
    row("  ten times", &millis(viewers.ten), "≤ 50 ms a second");
}

/// Needs a database of `scripts/with-postgresql`.
fn replica_rows(programs: &Path) {
    let database = Database::of_environment().expect("TEST_DATABASE_URL names a PostgreSQL database");
    let (state, api) = (TempDir::new().unwrap(), console::Api::serve());
    let file = |name: &str, config: String| {
        let file = state.path().join(name);
        std::fs::write(&file, config).unwrap();
        file
    };
    let start = |name: &str, config: &Path| Sekisho::start(programs, &state.path().join(name), config);
    {
        let counted = start("counted", &file("counted.yaml", database.config_of_calls(true, true)));
        let statements = format!("{:.1}", database.statements(&counted.url));
        row("a replica: statements for 1 000 calls, at 500 a second", &statements, "≤ 20");
        row("  statements a second without calls", &format!("{:.1}", database.idle_statements()), "");
    }
    let of_calls = file("replica.yaml", database.config_of_calls(true, false));
    let replicas = ["one", "two", "three"].map(|name| start(name, &of_calls));
    let alone = start("alone", &file("alone.yaml", database.config_of_calls(false, false)));
    let added = database.added(&replicas[0].url, &alone.url);
    row("  leases: added to a call, p50", &format!("{:.1} µs", added.p50), "≤ 5 µs");
    row("  p99", &format!("{:.1} µs", added.p99), "");
    let all = replicas.each_ref().map(|replica| (&*replica.url, replica.child.0.id()));
    let (one, three) = (database.processor_micros(&all[..1]), database.processor_micros(&all));
    row("  processor time of a call, one replica", &format!("{one:.0} µs"), "");
    row("  three replicas, the same calls a second together", &format!("{three:.0} µs"), "");
    drop((replicas, alone));
    let many = file("many.yaml", api.config(state.path()) + &database.config(true, false));
    let started = Instant::now();
    let first = start("first", &many);
    database.first_call(&first.url);
    row("  start to the first call, 2 000 tools", &format!("{:.2} s", started.elapsed().as_secs_f64()), "≤ 1 s");
    let second = start("second", &many);
    database.first_call(&second.url);
    let slowest = database.propagation(&first.url, &second.url);
    row("  a registration at another replica, slowest of five", &format!("{slowest:.2} s"), "≤ 2 s");
}

/// `conversations 20 10`: so many of them, for so many seconds.
fn load_of_arguments() -> Option<Load> {
    let mut numbers = std::env::args().skip_while(|argument| argument != "conversations");
    numbers.next()?;
    let mut number = || numbers.next().and_then(|number| number.parse::<u64>().ok());
    let (conversations, seconds) = (number().unwrap_or(200), number().unwrap_or(60));
    Some(Load { conversations: usize::try_from(conversations).unwrap(), time: Duration::from_secs(seconds) })
}

fn conversation_rows(programs: &Path, load: Load) {
    let state = TempDir::new().unwrap();
    let talks = Talks::serve();
    let config = state.path().join("conversations.yaml");
    std::fs::write(&config, std::fs::read_to_string(CONFIG).unwrap() + &talks.agents()).unwrap();
    let sekisho = Sekisho::start(programs, state.path(), &config);
    let measured = talks.measure(&sekisho.url, load);
    let peak = peak_megabytes(&sekisho.child.0).unwrap();
    let what = format!("{} conversations of 200 kB at once: runs", load.conversations);
    row(&what, &measured.runs.to_string(), "");
    row("  conversations whose rows do not fit", &measured.inconsistent.len().to_string(), "0");
    for problem in measured.inconsistent.iter().take(3) {
        println!("    {problem}");
    }
    row("  memory at its peak", &format!("{peak:.0} MB"), "≤ 300 MB");
    let millis = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1_000.0);
    row("  first event after the model's first piece", &millis(measured.first(50)), "≤ 10 ms");
    row("  the slowest of a hundred", &millis(measured.first(99)), "≤ 10 ms");
}

fn row(what: &str, measured: &str, goal: &str) {
    println!("{what:<58} {measured:>16}   {goal}");
}

fn criterion_median(folder: &Path, name: &str) -> f64 {
    let folder_name = name.replace([',', ' '], "_").replace("__", "_");
    let candidates = [name.to_owned(), folder_name];
    let found = candidates.iter().find_map(|name| std::fs::read(folder.join(name).join("new/estimates.json")).ok());
    let estimates: Value =
        serde_json::from_slice(&found.unwrap_or_else(|| panic!("criterion has not measured {name:?}"))).unwrap();
    estimates["median"]["point_estimate"].as_f64().unwrap() / 1_000.0
}

fn requests_a_second(url: &str) -> f64 {
    let seconds = format!("-d{LOAD_SECONDS}s");
    let target = format!("{url}/tools/calculator/execute");
    let wrk =
        Command::new("wrk").args(["-t1", "-c64", &seconds, "-s", "benches/execute.lua", &target]).output().unwrap();
    let text = String::from_utf8(wrk.stdout).unwrap();
    assert!(!text.contains("Non-2xx"), "the load was refused:\n{text}");
    let line =
        text.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:")).unwrap_or_else(|| panic!("{text}"));
    line.trim().parse().unwrap()
}

fn start_millis(programs: &Path) -> f64 {
    let state = TempDir::new().unwrap();
    let started = Instant::now();
    let sekisho = Sekisho::start(programs, state.path(), Path::new(CONFIG));
    wait_for(&sekisho.url);
    started.elapsed().as_secs_f64() * 1_000.0
}

/// The first answer over HTTP.
fn wait_for(url: &str) {
    let address = url.strip_prefix("http://").unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if let Ok(mut stream) = std::net::TcpStream::connect(address) {
            use std::io::{Read, Write};
            let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1"), "{answer}");
            return;
        }
        std::thread::yield_now();
    }
    panic!("{url} does not answer");
}

struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

struct Sekisho {
    child: Stopped,
    url: String,
}

impl Sekisho {
    fn start(programs: &Path, state: &Path, config: &Path) -> Self {
        let mut child = Command::new(programs.join("sekisho"))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(config)
            .env("SEKISHO_STATE_DIRECTORY", state)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            Some(line["address"].as_str()?.to_owned())
        });
        // The log is read, as a log collector would: its cost belongs to the measurement.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child: Stopped(child), url: format!("http://{}", address.expect("sekisho did not start")) }
    }

    fn resident_megabytes(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() / 1_024.0
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
