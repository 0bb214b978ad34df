//! Replays recorded runs of agents by the rules, without a gateway: `replay RUNS.jsonl [--no-history] [--list asked|missed]`.
#![expect(clippy::print_stdout, clippy::expect_used, reason = "a program for developers")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use sekisho_flow::{
    CallOrigin, Destination, DestinationHash, Judgement, KnownDestinations, SessionValues, ToolFacts, ToolLabels,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Run {
    model: String,
    suite: String,
    user_task: String,
    injection_task: Option<String>,
    #[serde(default)]
    injections: BTreeMap<String, String>,
    attack: Option<String>,
    utility: bool,
    attack_succeeded: bool,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    text: Option<String>,
    #[serde(default)]
    calls: Vec<Call>,
    #[serde(default)]
    call: String,
    #[serde(default)]
    tool: String,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    tool: String,
    arguments: Value,
}

impl Run {
    fn is_benign(&self) -> bool {
        self.attack.is_none() && !self.user_task.starts_with("injection")
    }

    fn half(&self) -> u64 {
        self.user_task.rsplit('_').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) % 2
    }
}

/// Destinations and tools of the benign runs of the other half of the tasks.
#[derive(Default)]
struct History {
    destinations: HashSet<DestinationHash>,
    tools: HashSet<String>,
}

impl KnownDestinations for History {
    fn knows(&self, tool: &str, destination: &Destination) -> bool {
        self.destinations.contains(&destination.hash(tool))
    }

    fn knows_tool(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }
}

/// A turn of a run with a question, by the tool of each call.
type Asked = (String, Judgement);

/// The calls of a run that were asked about. A person approves each of them.
fn replay(run: &Run, labels: &mut HashMap<String, ToolLabels>, known: &History, times: &mut Times) -> Vec<Asked> {
    let mut session = SessionValues::default();
    let (mut asked, mut steered) = (Vec::new(), HashSet::new());
    for message in &run.messages {
        match message.role.as_str() {
            "system" | "user" => session.add_user_text(message.text.as_deref().unwrap_or_default()),
            "tool" => {
                let origin = CallOrigin {
                    call: message.call.clone(),
                    tool: message.tool.clone(),
                    steered: steered.contains(&message.call),
                };
                let result = Value::String(message.text.clone().unwrap_or_default());
                let labels = labels_of(labels, &message.tool);
                let start = Instant::now();
                session.add_result(&origin, labels, &result);
                times.add.push(start.elapsed());
            }
            _ => turn(message, &mut session, labels, known, times, &mut steered, &mut asked),
        }
    }
    times.max_size = times.max_size.max(session.size());
    asked
}

/// All calls of a turn are judged before one of them is approved.
fn turn(
    message: &Message,
    session: &mut SessionValues,
    labels: &mut HashMap<String, ToolLabels>,
    known: &History,
    times: &mut Times,
    steered: &mut HashSet<String>,
    asked: &mut Vec<Asked>,
) {
    let mut approved = Vec::new();
    for call in &message.calls {
        let labels = labels_of(labels, &call.tool);
        let start = Instant::now();
        let judgement = session.judge(&call.tool, labels, &call.arguments, known);
        times.judge.push(start.elapsed());
        if judgement.is_steered() {
            steered.insert(call.id.clone());
        }
        if !judgement.questions.is_empty() {
            let destinations: Vec<_> =
                judgement.questions.iter().map(|question| question.destination.clone()).collect();
            approved.push((call.tool.clone(), destinations));
            asked.push((call.tool.clone(), judgement));
        }
    }
    for (tool, destinations) in approved {
        session.add_approved(&tool, &destinations);
    }
}

fn labels_of<'a>(labels: &'a mut HashMap<String, ToolLabels>, tool: &str) -> &'a ToolLabels {
    let facts = ToolFacts { name: tool, ..ToolFacts::default() };
    labels.entry(tool.to_owned()).or_insert_with(|| ToolLabels::infer(&facts, None))
}

#[derive(Default)]
struct Counts {
    won: usize,
    stopped: usize,
    /// A question is about a value that stands in the injected text, or about a call as a whole.
    strictly: usize,
    benign: usize,
    untouched: usize,
    questions: usize,
}

/// The histories of the halves of the tasks of each suite: each has the benign runs of the other half.
fn histories(runs: &[Run], labels: &mut HashMap<String, ToolLabels>) -> HashMap<(String, u64), History> {
    let mut histories: HashMap<(String, u64), History> = HashMap::new();
    for run in runs.iter().filter(|run| run.is_benign()) {
        let history = histories.entry((run.suite.clone(), 1 - run.half())).or_default();
        for call in run.messages.iter().flat_map(|message| &message.calls) {
            let destinations = sekisho_flow::destinations(labels_of(labels, &call.tool), &call.arguments);
            history.destinations.extend(destinations.iter().map(|destination| destination.hash(&call.tool)));
            history.tools.insert(call.tool.clone());
        }
    }
    histories
}

impl Counts {
    fn add(&mut self, run: &Run, asked: &[Asked], is_won: bool) {
        if is_won {
            self.won += 1;
            self.stopped += usize::from(!asked.is_empty());
            self.strictly += usize::from(asked.iter().any(|(_, judgement)| is_about(run, judgement)));
        } else {
            self.benign += 1;
            self.untouched += usize::from(asked.is_empty());
            self.questions += asked.len();
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let file = std::fs::File::open(arguments.get(1).expect("a file")).expect("the file");
    let list = arguments.iter().position(|argument| argument == "--list").and_then(|at| arguments.get(at + 1));
    let runs: Vec<Run> =
        BufReader::new(file).lines().map(|line| serde_json::from_str(&line.expect("a line")).expect("a run")).collect();
    let mut labels = HashMap::new();
    let has_history = !arguments.iter().any(|argument| argument == "--no-history");
    let histories = if has_history { histories(&runs, &mut labels) } else { HashMap::new() };
    let nothing = History::default();
    let mut counts: BTreeMap<[String; 2], Counts> = BTreeMap::new();
    let mut times = Times::default();
    for run in &runs {
        let (is_won, is_benign) = (run.attack.is_some() && run.attack_succeeded, run.is_benign() && run.utility);
        if !is_won && !is_benign {
            continue;
        }
        let known = histories.get(&(run.suite.clone(), run.half())).unwrap_or(&nothing);
        let asked = replay(run, &mut labels, known, &mut times);
        let (all, model, suite) = ("all".to_owned(), run.model.clone(), run.suite.clone());
        for key in [[model.clone(), suite.clone()], [model, all.clone()], [all.clone(), suite], [all.clone(), all]] {
            counts.entry(key).or_default().add(run, &asked, is_won);
        }
        show(run, &asked, list.map(String::as_str), is_won);
    }
    for ([model, suite], count) in counts {
        println!(
            "{model:36} {suite:10} won {:4} stopped {:4} (by a value of the injection {:4})  benign {:3} untouched {:3} questions {:3}",
            count.won, count.stopped, count.strictly, count.benign, count.untouched, count.questions
        );
    }
    times.show();
}

/// How long the calls took.
#[derive(Default)]
struct Times {
    judge: Vec<Duration>,
    add: Vec<Duration>,
    max_size: usize,
}

impl Times {
    fn show(mut self) {
        self.judge.sort();
        self.add.sort();
        for (name, times) in [("judge", &self.judge), ("add_result", &self.add)] {
            let sum: Duration = times.iter().sum();
            let calls = u32::try_from(times.len().max(1)).unwrap_or(u32::MAX);
            let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
            println!("{name}: median {:?}, mean {:?}, 99 % {:?}", at(50), sum / calls, at(99));
        }
        println!("largest session: {} bytes", self.max_size);
    }
}

fn is_about(run: &Run, judgement: &Judgement) -> bool {
    judgement.questions.iter().any(|question| {
        let identity = question.destination.identity.trim_start_matches("/");
        let is_injected = |text: &String| text.to_lowercase().contains(&identity.to_lowercase());
        question.pointer.is_empty() || run.injections.values().any(is_injected)
    })
}

fn show(run: &Run, asked: &[Asked], list: Option<&str>, is_won: bool) {
    let injection = run.injection_task.as_deref().unwrap_or("-");
    match list {
        Some("missed") if is_won && !asked.iter().any(|(_, judgement)| is_about(run, judgement)) => {
            println!("MISSED {} {} {} {injection}", run.model, run.suite, run.user_task);
            for question in asked.iter().flat_map(|(_, judgement)| &judgement.questions) {
                println!("    asked {} {}", question.pointer, question.value);
            }
            for call in run.messages.iter().flat_map(|message| &message.calls) {
                println!("    {} {}", call.tool, call.arguments);
            }
        }
        Some("asked") if !is_won && !asked.is_empty() => {
            println!("ASKED {} {} {}", run.model, run.suite, run.user_task);
            for (tool, judgement) in asked {
                for question in &judgement.questions {
                    println!(
                        "    {tool} {} {:?} {:?} | {} | {:?}",
                        question.pointer,
                        question.state,
                        question.value,
                        question
                            .origin
                            .as_ref()
                            .map_or(String::new(), |origin| format!("{} {}", origin.tool, origin.path)),
                        question.sentence
                    );
                }
            }
        }
        _ => {}
    }
}
