//! Measures the search on tasks whose tools are known: `bench_search [--json] [--embeddings FILE] TASKS...`. A file of tasks has `tools` as
//! MCP lists them (and the `server` of each, where it is known), `tasks` with the names that each `needs` (and the `plan` of others, if
//! there is one), and `steps` that need one. scripts/bench-search runs it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use sekisho_tool_search::{Embeddings, Part, Search, SearchIndex, Searchable, Usage, UsedTool};
use serde_json::{Value, json};

/// How many tools the measured searches may answer with.
const MOST: usize = 20;

/// Tools of the measurement of time.
const MANY: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut files, mut embeddings, mut is_json) = (Vec::new(), None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => is_json = true,
            "--embeddings" => {
                let file = arguments.next().ok_or("--embeddings: name a file")?;
                embeddings = Some(Arc::new(Embeddings::read(&std::fs::read(file)?)?));
            }
            _ => files.push(argument),
        }
    }
    if embeddings.is_none() {
        eprintln!("no table of embeddings: the search is by words alone");
    }
    for file in &files {
        let tasks: Value = serde_json::from_slice(&std::fs::read(file)?)?;
        let data = Data::read(&tasks)?;
        let index = SearchIndex::build(data.tools.iter().copied(), embeddings.clone());
        if is_json {
            println!("{}", data.measure(&index, Part::All, None));
            continue;
        }
        println!("{file}: {} tools, {} tasks, {} steps", data.tools.len(), data.tasks.len(), data.steps.len());
        for part in [Part::Words, Part::Meaning, Part::WithoutSteps, Part::All] {
            println!("  {part:?}: {}", data.measure(&index, part, None));
        }
        println!("  after use: {}", data.measure(&index, Part::All, Some(&data.usage())));
        println!("  {}", data.time(embeddings.clone()));
    }
    Ok(())
}

/// Tools, tasks with the names of their tools, and steps.
struct Data<'a> {
    tools: Vec<Searchable<'a>>,
    tasks: Vec<(&'a str, Vec<&'a str>)>,
    steps: Vec<(&'a str, &'a str)>,
    /// Of each task what others searched for who called its tools, if the file has it as `plan`.
    plans: Vec<Option<&'a str>>,
}

/// When the simulated calls happened; no time passes until the search.
const DAY: u64 = 1_800_000_000;

impl<'a> Data<'a> {
    fn read(file: &'a Value) -> Result<Self, Box<dyn Error>> {
        let list = |key: &str| file.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let tools = list("tools").iter().map(searchable).collect::<Option<_>>().ok_or("a tool has no name")?;
        let tasks = list("tasks").iter().map(|task| {
            let needs = task.get("needs")?.as_array()?.iter().filter_map(Value::as_str).collect();
            Some((task.get("text")?.as_str()?, needs))
        });
        let tasks = tasks.collect::<Option<_>>().ok_or("a task lacks `text` or `needs`")?;
        let steps = list("steps").iter().map(|step| Some((step.get("text")?.as_str()?, step.get("needs")?.as_str()?)));
        let plans = list("tasks").iter().map(|task| task.get("plan").and_then(Value::as_str)).collect();
        Ok(Self { tools, tasks, plans, steps: steps.collect::<Option<_>>().ok_or("a step lacks `text` or `needs`")? })
    }

    /// A day of use: others called each task's tools, after a search for its plan or else for every second one of its words.
    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for ((text, needs), plan) in self.tasks.iter().zip(&self.plans) {
            let half = || text.split_whitespace().skip(1).step_by(2).collect::<Vec<_>>().join(" ");
            let query = plan.map_or_else(half, str::to_owned);
            for (at, tool) in needs.iter().enumerate() {
                usage.add(UsedTool { tool, query: Some(&query), before: &needs[..at], has_failed: false }, DAY);
            }
        }
        usage
    }

    /// The mean share of a task's tools among the first 5 and 20, and the share of steps whose tool is the first or among 5.
    fn measure(&self, index: &SearchIndex, part: Part, usage: Option<&Usage>) -> Value {
        let mut shares = [0.0; 4];
        for (text, needs) in &self.tasks {
            let found = self.names(index, part, text, usage);
            for (share, most) in shares.iter_mut().zip([5, MOST]) {
                let having = needs.iter().filter(|need| found.iter().take(most).any(|name| name == *need)).count();
                *share += having as f64 / (needs.len().max(1) * self.tasks.len()) as f64;
            }
        }
        for (text, need) in &self.steps {
            let found = self.names(index, part, text, usage);
            for (share, most) in shares.iter_mut().skip(2).zip([1, 5]) {
                *share +=
                    f64::from(u8::from(found.iter().take(most).any(|name| name == need))) / self.steps.len() as f64;
            }
        }
        let [task_5, task_20, step_1, step_5] = shares.map(|share| (share * 10_000.0).round() / 10_000.0);
        json!({"task_5": task_5, "task_20": task_20, "step_1": step_1, "step_5": step_5})
    }

    /// The distinct names that a search finds: twins of several servers count once.
    fn names(&self, index: &SearchIndex, part: Part, query: &str, usage: Option<&Usage>) -> Vec<&'a str> {
        let mut seen = HashSet::new();
        let found = index
            .search_where(Search { query, at_most: 2 * MOST, part, usage }, |_| true)
            .into_iter()
            .map(|(tool, _)| self.tools[tool].name);
        found.filter(|name| seen.insert(*name)).take(MOST).collect()
    }

    /// How long searches take among many tools, which are these several times.
    fn time(&self, embeddings: Option<Arc<Embeddings>>) -> Value {
        let start = Instant::now();
        let index = SearchIndex::build(self.tools.iter().copied().cycle().take(MANY), embeddings);
        let built = start.elapsed();
        let texts = self.tasks.iter().map(|(text, _)| text).chain(self.steps.iter().map(|(text, _)| text));
        let mut took: Vec<_> = texts
            .map(|text| {
                let start = Instant::now();
                index.search(text, MOST);
                start.elapsed().as_secs_f64() * 1_000.0
            })
            .collect();
        took.sort_by(f64::total_cmp);
        let of = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
        json!({"tools": MANY, "built_ms": built.as_millis(), "p50_ms": of(50), "p95_ms": of(95)})
    }
}

fn searchable(tool: &Value) -> Option<Searchable<'_>> {
    let text = |key: &str| tool.get(key).and_then(Value::as_str);
    Some(Searchable {
        name: text("name")?,
        description: text("description").unwrap_or_default(),
        category: "",
        source: text("server").unwrap_or_default(),
        parameters: tool.get("inputSchema").unwrap_or(&Value::Null),
    })
}
