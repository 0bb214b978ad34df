//! The measured programs, and how to check that they ran.

use sekisho::{Answer, CallError};

/// One program, with its goals.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) code: &'static str,
    /// For one caller.
    pub(super) goal: &'static str,
    /// For two callers, where there is one.
    pub(super) goal_of_two: Option<&'static str>,
    ends: Ends,
}

/// The expected result of a run.
#[derive(Debug)]
enum Ends {
    /// Written to stdout, somewhere in it.
    Stdout(&'static str),
    Picture,
    /// In the message of the failure.
    Exception(&'static str),
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "pass",
        code: "pass",
        goal: "p50 ≤ 0.8 ms",
        goal_of_two: Some("≥ 2 500 a second"),
        ends: Ends::Stdout(""),
    },
    Program {
        name: "a numpy sum",
        code: "import numpy as np\nprint(np.arange(5).sum())",
        goal: "p50 ≤ 1.5 ms",
        goal_of_two: None,
        ends: Ends::Stdout("10\n"),
    },
    Program {
        name: "a pandas describe",
        code: "import pandas as pd\nprint(pd.DataFrame({'a': range(9), 'b': [1.5] * 9}).describe())",
        goal: "p50 ≤ 25 ms",
        goal_of_two: None,
        ends: Ends::Stdout("mean"),
    },
    Program::hundred_calls(),
    Program {
        name: "a traceback",
        code: "def divide(a, b):\n    return a / b\n\ndivide(1, 0)",
        goal: "",
        goal_of_two: None,
        ends: Ends::Exception("division by zero"),
    },
    Program {
        name: "a PNG plot",
        code: "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.title('a line')\nNone",
        goal: "p50 ≤ 250 ms",
        goal_of_two: None,
        ends: Ends::Picture,
    },
];

impl Program {
    /// Of the calculator, one after the other.
    pub(super) const fn hundred_calls() -> Self {
        Self {
            name: "a hundred calls of the calculator",
            code: "from host import tools\nprint(len([tools.calculator(expression='1') for _ in range(100)]))",
            goal: "p50 ≤ 20 ms",
            goal_of_two: None,
            ends: Ends::Stdout("100\n"),
        }
    }

    /// The same without the calls: the tool is only described.
    pub(super) const fn no_calls() -> Self {
        Self {
            name: "no call of the calculator",
            code: "from host import tools\nprint(len([tools.calculator for _ in range(100)]))",
            goal: "",
            ..Self::hundred_calls()
        }
    }

    /// Keeps its instance live for 3 seconds, without using the processor.
    pub(super) const fn nap() -> Self {
        Self { name: "a nap", code: "import time\ntime.sleep(3)", goal: "", goal_of_two: None, ends: Ends::Stdout("") }
    }

    /// A run that costs next to nothing.
    pub(super) const fn sum() -> Self {
        Self {
            name: "a sum beside bulk copies",
            code: "print(1 + 1)",
            goal: "",
            goal_of_two: None,
            ends: Ends::Stdout("2"),
        }
    }

    /// Copies memory for 2 seconds, by instructions that take 10 ms and more each.
    pub(super) const fn bulk_copies() -> Self {
        const CODE: &str = "import time\nblock = bytearray(48 << 20)\nend = time.monotonic() + 2\n\
                            while time.monotonic() < end:\n    copy = bytes(block)";
        Self { name: "bulk copies", code: CODE, goal: "", goal_of_two: None, ends: Ends::Stdout("") }
    }

    /// # Errors
    /// The run has another result.
    pub(super) fn check(&self, outcome: &Result<Answer, CallError>) -> Result<(), String> {
        let is_right = match (&self.ends, outcome) {
            (Ends::Stdout(text), Ok(answer)) => {
                answer.output["stdout"].as_str().is_some_and(|stdout| stdout.contains(text))
            }
            (Ends::Picture, Ok(answer)) => answer.output["images"].as_array().is_some_and(|images| images.len() == 1),
            (Ends::Exception(text), Err(error)) => error.to_string().contains(text),
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let description = match outcome {
            Ok(answer) => answer.output.to_string(),
            Err(error) => error.to_string(),
        };
        Err(format!("`{}` had an unexpected result: {description}", self.name))
    }
}
